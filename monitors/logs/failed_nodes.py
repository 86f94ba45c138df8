"""The jobs that DAGMan lists as failed at the end of ``<dag>.dagman.out``, also those whose PRE
script or submission failed and which no event log knows:

    11/21/26 11:26:46 ERROR: the following job(s) failed:
    11/21/26 11:26:46 ---------------------- Node ----------------------
    11/21/26 11:26:46       Node Name: align_ID1
    11/21/26 11:26:46           Error: Job proc (5.0.0) failed with status 3 (after 1 node retries)
"""

from __future__ import annotations

import re

STAMP = r"^[\d/:. -]{14,40}(?: \([^)]*\))* "
# The messages without their stamps.
FAILED = r"ERROR: the following job\(s\) failed:"
NODE = r" *Node Name: (\S+)\s*"
ERROR = r" *Error: (.+?)\s*"

_FAILED = re.compile(STAMP + FAILED, re.MULTILINE)
_NODE = re.compile(STAMP + NODE + "$", re.MULTILINE)
_ERROR = re.compile(STAMP + ERROR + "$", re.MULTILINE)


def listed(text: str) -> dict[str, str]:
    """Job name to reason, from DAGMan's last list of failed jobs in its log."""
    starts = list(_FAILED.finditer(text))
    if not starts:
        return {}
    text = text[starts[-1].end() :]
    nodes = list(_NODE.finditer(text))
    ends = [*(node.start() for node in nodes[1:]), len(text)]
    found = {}
    for node, end in zip(nodes, ends[: len(nodes)], strict=True):
        error = _ERROR.search(text, node.end(), end)
        found[node[1]] = error[1] if error else ""
    return found
