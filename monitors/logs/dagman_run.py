"""Reads from ``<dag>.dagman.out`` what no job log tells: DAGMan's own life and its PRE scripts.

    ** condor_dagman (CONDOR_DAGMAN) STARTING UP
    ** PID = 357 RealUID = 1000
    Running PRE script of Node stage_in_0...
    PRE Script of node stage_in_0 completed successfully.
    PRE Script of node stage_in_0 failed with status 1
    PRE Script of node stage_in_0 died on signal 9 (Killed)
    Event: ULOG_SUBMIT for HTCondor Node stage_in_0 (4.0.0) {11/21/26 10:06:14}
    **** condor_dagman (condor_DAGMAN) pid 357 EXITING WITH STATUS 0

Seen with 25.14.1; the lines of single jobs need ``DAGMAN_VERBOSITY`` 3 (the default) or more. A PRE
that asks to be run again later (``SCRIPT DEFER``) has not ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from monitors.logs.dagman_log import (
    EXIT,
    EXIT_RESTART,
    SCRIPT_ENDED,
    START,
    message_of,
    script_status,
)
from monitors.logs.localtime import LocalClock
from monitors.logs.tail import Lines

_PID = re.compile(rb"\*\* PID = (\d{1,10})\b")
_PRE_STARTS = re.compile(rb"Running PRE script of (?:[Nn]ode|Job) (\S+?)\.\.\.\s*\Z")
_PRE_ENDS = re.compile(rb"PRE " + SCRIPT_ENDED)
_SUBMIT = re.compile(rb"Event: ULOG_SUBMIT for HTCondor (?:[Nn]ode|Job) (\S+) \((\d{1,10})\.")

# What a line must hold to be looked at.
_WORDS = (b"** PID =", b"STARTING UP", b"EXITING WITH", b"PRE script of", b"PRE Script of",
          b"ULOG_SUBMIT ")  # fmt: skip


class Step(StrEnum):
    """The kinds of what is told."""

    STARTED = "started"
    PID = "pid"
    EXITED = "exited"  # of this DAGMan, which may be started again
    PRE_STARTED = "pre_started"
    PRE_ENDED = "pre_ended"
    SUBMITTED = "submitted"


_STEPS = {
    START: Step.STARTED,
    EXIT: Step.EXITED,
    _PID: Step.PID,
    _PRE_STARTS: Step.PRE_STARTED,
    _PRE_ENDS: Step.PRE_ENDED,
    _SUBMIT: Step.SUBMITTED,
}


@dataclass(frozen=True, slots=True)
class Told:
    """One step. ``at`` in Unix seconds; ``number`` is the process id, the exit status (minus the
    signal where one ended it) or the job's cluster; ``again`` where the schedd is to start DAGMan
    again."""

    step: Step
    at: float
    node: str = ""
    number: int = 0
    again: bool = False


class RunParser:
    """Takes a ``dagman.out`` in portions and gives its steps. Never fails. One parser reads one
    file from its beginning."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._clock = LocalClock()

    def feed(self, data: bytes) -> Iterator[Told]:
        """The steps in the next portion of the file."""
        for _, line in self._lines.feed(data):
            if not any(word in line for word in _WORDS):
                continue
            message = message_of(line, self._clock)
            told = None if message is None else _told(*message)
            if told is not None:
                yield told


def _told(at: float, text: bytes) -> Told | None:
    for pattern, step in _STEPS.items():
        if found := pattern.match(text):
            node, number = _details(step, found)
            again = step is Step.EXITED and number == EXIT_RESTART
            return Told(step, at, node.decode(errors="replace"), number, again)
    return None


def _details(step: Step, found: re.Match[bytes]) -> tuple[bytes, int]:
    if step is Step.PRE_ENDED:
        return found[1], script_status(found)
    if step is Step.SUBMITTED:
        return found[1], int(found[2])
    if step is Step.PRE_STARTED:
        return found[1], 0
    return b"", int(found[1]) if found.re.groups else 0
