"""Asks ``pegasus-status`` where a workflow's own files cannot be understood, and checks the answer.

    pegasus-status -j -Q DIR
    {"totals": {"unready": 0, "ready": 1, …}, "dags": {"root": {"unready": 0, "ready": 1, "pre": 0,
     "queued": 2, "post": 0, "succeeded": 3, "failed": 0, "percent_done": 50.0, "total": 6,
     "state": "Running", "dagname": "mini-0.dag"}}}

It starts a process and reads all that DAGMan ever wrote, so it is asked only where following the
files says nothing, and seldom. ``-Q``: the queue is not asked. What it prints of a workflow that it
does not understand either are zeros, which say nothing.

Tried with Pegasus 5.1.3 and 6.0.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from monitors.follow.inquiry import Inquiry
from monitors.printed import printed
from monitors.status import State, Status

TIMEOUT_S = 30.0
PATIENCE_S = 20.0  # for DAGMan's own words, before anybody else is asked
AGAIN_S = 60.0

_NAMES = {
    "unready": "unready",
    "ready": "ready",
    "pre": "pre",
    "in_queue": "queued",
    "post": "post",
    "done": "succeeded",
    "fail": "failed",
    "total": "total",
}
_STATES = {"Running": State.RUNNING, "Success": State.DONE, "Failure": State.FAILED}
_MOST_JOBS = 10**9

Ask = Callable[[Path], str | None]


def parsed(text: str | None, at: float) -> Status | None:
    """What it says of the workflow itself at ``at`` (Unix seconds); None where it says nothing, or
    what cannot be: counts that are none, more jobs than there are, or another share than theirs."""
    try:
        said = json.loads(text or "")["dags"]["root"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    counts = {name: _count(said, theirs) for name, theirs in _NAMES.items()}
    state = _STATES.get(str(said.get("state")))
    share = said.get("percent_done")
    if state is None or None in counts.values() or not isinstance(share, int | float):
        return None
    known: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    all_jobs = known["total"]
    futile = all_jobs - sum(count for name, count in known.items() if name != "total")
    if not all_jobs or futile < 0 or not abs(share - 100 * known["done"] / all_jobs) <= 0.011:
        return None  # also where the share is no number
    return Status(**known, percent_done=float(share), state=state, at=at, futile=futile)


def key_of(status: Status) -> str:
    """Tells a status that it told from all others."""
    return f"pegasus-status:{status.at:.3f}:{sha256(repr(status).encode()).hexdigest()[:8]}"


def ask(folder: Path) -> str | None:
    """What it prints of a submit directory; None where it is not there, or takes too long."""
    return printed(["pegasus-status", "-j", "-Q", str(folder.absolute())], TIMEOUT_S)


class Fallback(Inquiry[Path, Status]):
    """Asks for workflows that have been puzzling for a while.

    ``run`` prints what pegasus-status says of a directory, ``clock`` gives Unix seconds.
    """

    def __init__(
        self,
        run: Ask = ask,
        clock: Callable[[], float] = time.time,
        patience_s: float = PATIENCE_S,
        again_s: float = AGAIN_S,
    ) -> None:
        super().__init__(
            lambda folder: parsed(run(folder), clock()), "pegasus-status", patience_s, again_s
        )


def _count(said: Mapping[str, Any], name: str) -> int | None:
    count = said.get(name)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_JOBS:
        return None
    return count
