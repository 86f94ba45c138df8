"""Files of Pegasus 4, recognised to say what became of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_XML_ROOT = re.compile(r"<([A-Za-z_][\w.\-]*+)([^<>]*+)>", re.ASCII)
_VERSION = re.compile(r"\bversion\s*=\s*[\"']([\w.]{1,12})[\"']", re.ASCII)
# A text catalog of transformations (``tr ns::name:1.0 {``), and one of replicas
# (``lfn pfn site="local"``, where sites were once called pools).
_TRANSFORMATION = re.compile(r"(?:tr|cont)\s+[^\s{]+\s*\{", re.ASCII)
_REPLICA = re.compile(r"[^\s:]+\s+\S+\s+(?:\S+\s+)*(?:site|pool)=\"", re.ASCII)
_SEEN = 20_000

_ROOTS: Mapping[str, tuple[str, str]] = {
    "adag": (
        "a workflow of Pegasus 4 or older",
        "have its generator write it by the Pegasus.api package of Pegasus 5 (Pegasus manual, "
        "'Moving From DAX3 to Pegasus.api')",
    ),
    "sitecatalog": (
        "a site catalog of Pegasus 4",
        "convert it by 'pegasus-sc-converter -i sites.xml -o sites.yml'",
    ),
}


def old_format(text: str) -> tuple[str, str] | None:
    """What a text that is no YAML catalog is, and what to do with it, or None where unknown."""
    start = text[:_SEEN].lstrip()
    if start.startswith("<"):
        return _xml(start)
    lines = (line.strip() for line in start.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if _TRANSFORMATION.match(first):
        return (
            "a transformation catalog of Pegasus 4 as text",
            "convert it by 'pegasus-tc-converter -I Text -i tc.txt -O YAML -o transformations.yml'",
        )
    if _REPLICA.match(first):
        return (
            "a replica catalog of Pegasus 4 as text",
            "convert it by 'pegasus-rc-converter -I File -i rc.txt -O YAML -o replicas.yml'",
        )
    return None


def _xml(start: str) -> tuple[str, str]:
    root = _XML_ROOT.search(start)
    if root is None or root[1].lower() not in _ROOTS:
        return ("XML" if root is None else f"XML <{root[1][:40]}>"), ""
    kind, advice = _ROOTS[root[1].lower()]
    version = _VERSION.search(root[2])
    return f"XML <{root[1]}{f' {version[1]}' if version else ''}>, {kind}", advice
