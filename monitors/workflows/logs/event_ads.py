"""Reads events that HTCondor writes as ClassAds, in XML or JSON, instead of text.

    <c>                                             {
      <a n="EventTypeNumber"><i>12</i></a>            "EventTypeNumber": 12,
      <a n="EventTime"><s>2026-05-11T08:00:42</s></a>   "EventTime": "2026-05-11T08:00:42",
      <a n="HoldReason"><s>…</s></a>                  "HoldReason": "…"
    </c>                                            }

``log_xml = True``, ``EVENT_LOG_USE_XML`` and ``DEFAULT_USERLOG_FORMAT_OPTIONS`` ask for them.
"""

from __future__ import annotations

import json
from typing import Any

_MOST_LINES = 2000  # of one ad


class AdLines:
    """Puts the lines of a log together to ads."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._depth = 0

    def feed(self, line: bytes) -> tuple[bool, dict[str, Any] | None]:
        """Whether the line is one of an ad, and the ad where it is the last of one."""
        text = line.strip()
        if line.startswith((b"<c>", b"{")):  # what is inside an ad is indented
            self._lines, self._depth = [], 0
        elif not self._lines:
            return False, None
        self._lines.append(text)
        is_xml = self._lines[0].startswith(b"<")
        self._depth += text.count(b"<c>") - text.count(b"</c>")
        if self._depth > 0 or not text.endswith((b"</c>", b"}")):
            if len(self._lines) > _MOST_LINES:
                self._lines = []
            return True, None
        data = b"\n".join(self._lines)
        found = _xml(data) if is_xml else _json(data)
        if is_xml or found is not None:
            self._lines = []
        return True, found


def _json(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _xml(data: bytes) -> dict[str, Any] | None:
    from xml.etree import ElementTree  # noqa: PLC0415  # few logs are XML

    try:
        return {
            attribute.get("n", ""): _value(value)
            for attribute in ElementTree.fromstring(data)
            for value in attribute
        }
    except (ElementTree.ParseError, ValueError):
        return None


def _value(element: Any) -> Any:
    text = element.text or ""
    if element.tag == "i":
        return int(text)
    if element.tag == "r":
        return float(text)
    return element.get("v") == "t" if element.tag == "b" else text
