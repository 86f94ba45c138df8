"""How far a run has come: what each step gave, so that a run that is cut short can say."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from adon.planning.placement import PlacedWorkflow
from condor_plugins.waiting import StuckJob
from examples.scenario import CheckedResult
from network_provisioner.base.errors import AdonError
from pegasus_hooks.planner.model import PlannedWorkflow

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to stop; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"interrupted by {signal.Signals(self.number).name}"


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run ended: its state and Unix seconds, and HTCondor's reason where it gave one."""

    state: str
    started: float
    ended: float
    reason: str = ""


@dataclass(slots=True)
class DemoRun:
    """The steps of one run. What has not been reached is None or empty.

    ``step`` continues after "while", and ``trouble`` is what cut the run short.
    """

    step: str = "the testbed started"
    before: PlacedWorkflow | None = None
    placed: PlacedWorkflow | None = None
    planned: PlannedWorkflow | None = None
    submitted_at: float = 0.0
    end: Ended | None = None
    stuck: Sequence[StuckJob] = ()
    science: CheckedResult = field(default_factory=CheckedResult)
    trouble: AdonError | OSError | Interrupted | None = None

    @property
    def stopped(self) -> str:
        """In a sentence what cut the run short, empty if nothing did."""
        return f"{reason(self.trouble)}, while {self.step}" if self.trouble else ""


def reason(error: AdonError | OSError | Interrupted) -> str:
    """An error in one line for users."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return str(error)


@contextmanager
def interruptible() -> Iterator[None]:
    """While the block runs, the first INT, TERM or HUP raises :class:`Interrupted` in the main
    thread. The second ends the process as it always would: nothing of the testbed outlives it."""
    before = {number: signal.getsignal(number) for number in _STOPS}

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in _STOPS:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)

    try:
        for number in _STOPS:
            # nohup and background jobs of shells have them ignored, and so it stays.
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
