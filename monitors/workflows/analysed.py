"""What the analysis of a workflow consists of (:mod:`monitors.workflows.analysis`)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Of several times, in seconds; all 0 where there are none."""

    count: int = 0
    total_s: float = 0.0
    min_s: float = 0.0
    mean_s: float = 0.0
    median_s: float = 0.0
    max_s: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """What is to be said of ``values``."""
        if not values:
            return cls()
        total = sum(values)
        mean = min(max(total / len(values), min(values)), max(values))  # rounding may leave them
        return cls(len(values), total, min(values), mean, statistics.median(values), max(values))


@dataclass(frozen=True, slots=True)
class Runtimes:
    """Of one transformation at one site: how long attempts that ended well ran; ``failed`` did
    not. ``cpu_s`` is None where no record tells."""

    transformation: str
    site: str
    kind: str
    runtime: Spread
    failed: int
    cpu_s: float | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        head = {"transformation": self.transformation, "site": self.site, "kind": self.kind}
        return head | asdict(self.runtime) | {"failed": self.failed, "cpu_s": self.cpu_s}


@dataclass(frozen=True, slots=True)
class Waits:
    """How long compute jobs waited for a worker at one site, each attempt."""

    site: str
    wait: Spread

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        shown = asdict(self.wait)
        del shown["total_s"]
        return {"site": self.site} | shown


@dataclass(frozen=True, slots=True)
class Transfers:
    """What one tool moved from one site to another. ``bytes`` counts those whose size is known, and
    ``goodput_bps`` is what they got together; rates are None where nothing was timed."""

    src: str
    dst: str
    tool: str
    count: int
    failed: int
    retries: int
    files: int
    bytes: int
    unsized: int
    seconds: float
    goodput_bps: float | None
    median_bps: float | None
    best_effort: int
    paths: Sequence[tuple[Sequence[str], int]]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        shown["paths"] = [{"path": list(path), "count": count} for path, count in self.paths]
        return shown


@dataclass(frozen=True, slots=True)
class Failed:
    """A job with an attempt that did not end well; ``retried`` where a later one did."""

    workflow: str
    job: str
    task: str
    transformation: str
    site: str
    host: str | None
    outcome: str
    exitcode: int | None
    attempts: int
    retried: bool
    at: float
    reason: str
    stderr: str
    output: str

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Analysis:
    """Of one workflow, or several together. Instants in Unix seconds, None before the first.

    ``makespan_s`` is from the first submission to the last end, ``cumulative_s`` the time that the
    workflow's own jobs ran whose attempts ended well, ``lost_s`` that of those which did not.
    """

    first_at: float | None = None
    last_at: float | None = None
    makespan_s: float = 0.0
    cumulative_s: float = 0.0
    lost_s: float = 0.0
    attempts: int = 0
    retries: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    runtimes: Sequence[Runtimes] = ()
    waits: Sequence[Waits] = ()
    transfers: Sequence[Transfers] = ()
    failures: Sequence[Failed] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        shown["outcomes"] = dict(self.outcomes)
        for name in ("runtimes", "waits", "transfers", "failures"):
            shown[name] = [one.as_dict() for one in shown[name]]
        return shown
