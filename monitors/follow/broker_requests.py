"""Requests to measure workflows at once, of a broker that is reached over HTTP: for a follower that
records there (:class:`~monitors.follow.sink.BrokerSink`)."""

from __future__ import annotations

import json
import logging
import threading

from monitors.background import Background
from network_provisioner.errors import AdonError
from network_provisioner.http1 import Server, Tls

_log = logging.getLogger(__name__)

_WAIT_S = 10.0  # the broker holds a question for so long where there is nothing to answer
_AGAIN_S = 5.0
_KEPT = 1000


class BrokerRequests:
    """What is asked at ``url``, from :meth:`start` to :meth:`stop`; what was asked before is of
    those who do not wait any more. Raises InputError for a URL or a token that is none."""

    def __init__(self, url: str, token: str | None = None, tls: Tls | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._server = Server(url, _WAIT_S + 15.0, headers, tls or Tls())
        self._thread = Background("requests", self._run)
        self._stop = self._thread.stopping
        self._lock = threading.Lock()
        self._found: list[tuple[int, str, float]] = []

    def asked(self, kind: str, after: int = 0) -> list[tuple[int, str, float]]:
        """See :class:`monitors.follow.sink.Requests`. Returns at once."""
        with self._lock:
            return [one for one in self._found if one[0] > after]

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End; a question that waits for its answer is left to itself."""
        self._thread.stop(longest_s=0)

    def _run(self) -> None:
        after, first, said, failed = 0, True, "", ""
        while not self._stop.is_set():
            try:
                found = self._ask(after, 0.0 if first else _WAIT_S)
                said = failed = ""
            except AdonError as error:
                # Once, however long it lasts; not of the first try: who records there says it too.
                if str(error) == failed != said:
                    said = failed
                    _log.warning("requests to measure at once: %s", error)
                failed = str(error)
                self._stop.wait(_AGAIN_S)
                continue
            after = max((number for number, _, _ in found), default=after)
            if not first:
                with self._lock:
                    self._found = (self._found + found)[-_KEPT:]
            first = False

    def _ask(self, after: int, wait_s: float) -> list[tuple[int, str, float]]:
        status, text = self._server.ask("GET", f"/v1/refreshes?after={after}&wait_s={wait_s:g}")
        try:
            rows = json.loads(text if status == 200 else "")
            return [(int(r["request"]), str(r["workflow"]), float(r["at"])) for r in rows]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise AdonError(_refusal(self._server.url, status, text)) from None


def _refusal(url: str, status: int, text: str | bytes) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{url} answered {status}: {text[:80]!r}"
