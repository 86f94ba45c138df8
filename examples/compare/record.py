"""One run as it is kept: what the comparison is made from."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import psutil

from adon.report.run_facts import RunFacts
from examples.compare.split import Split, split
from examples.demo.running import STOPPED
from monitors.workflows.planned.dag import read_dag
from site_selector.wholefile import write_whole

BUSY = 0.95  # of all cores: jobs wait for them then
_PART = 0.1  # of a run in which the cores are busy for so long they were what held it up
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """Who had a path over which links, from when to when (seconds from the start), at what rate."""

    job: str
    path: tuple[str, ...]
    start: float
    end: float
    bps: float


@dataclass(frozen=True, slots=True)
class Run:
    """A run. Seconds; ``expected`` is the end as the mapping forecast it. ``cores``: mean load of
    all cores, and the part of the run in which they were busy. ``jobs``: how many ran at each
    site."""

    way: str
    number: int
    state: str
    makespan: float
    expected: float
    split: Split
    cores: tuple[float, float]
    jobs: dict[str, int]
    held: tuple[Held, ...]
    planner: str
    wrong: tuple[str, ...] = ()

    @property
    def by_cores(self) -> bool:
        """Whether the cores held it up, and not the network."""
        return self.cores[1] > _PART

    @property
    def good(self) -> bool:
        """Whether it may be counted; one that was stopped counts as if that had been its end."""
        return self.state in ("success", STOPPED) and not self.by_cores

    def save(self, file: Path) -> None:
        """Write it, whole or not at all. Raises InputError."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        write_whole(file, lambda stream: stream.write(text), "a run")

    @classmethod
    def load(cls, file: Path) -> Run | None:
        """The run in ``file``, None if there is none that can be read."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            data["split"] = Split(**data["split"])
            data["cores"] = tuple(data["cores"])
            data["held"] = tuple(Held(**fields) for fields in data["held"])
            data["wrong"] = tuple(data["wrong"])
            return cls(**data)
        return None


def run_of(facts: RunFacts, way: str, number: int, loads: list[tuple[float, float]]) -> Run:
    """The run that ``facts`` tell of; ``loads`` are what :class:`Cores` saw."""
    parents = {}
    if facts.submit_dir is not None:
        nodes = read_dag(facts.submit_dir).nodes
        parents = {name: node.parents for name, node in nodes.items()}
    during = [load for at, load in loads if facts.started <= at <= facts.ended] or [0.0]
    jobs: dict[str, int] = {}
    for bar in facts.bars:
        if bar.kind == "compute" and bar.ok:
            jobs[bar.site] = jobs.get(bar.site, 0) + 1
    holds = [
        Held(
            t.request.job,
            tuple(t.grant.path),
            t.grant.installed_at - facts.started,
            (t.grant.released_at or facts.ended) - facts.started,
            t.grant.granted_bps,
        )
        for t in facts.transits
        if t.grant.path and t.grant.installed_at
    ]
    return Run(
        way,
        number,
        facts.state,
        facts.makespan_s,
        float(facts.expected_s or 0.0),
        split(facts.bars, parents, facts.started, facts.ended),
        (sum(during) / len(during), sum(load > BUSY for load in during) / len(during)),
        jobs,
        tuple(sorted(holds, key=lambda hold: hold.start)),
        facts.planner,
        tuple(facts.warnings),
    )


class Cores:
    """Meanwhile the load of all cores is noted each second: (Unix second, 0 to 1). What gives way
    (``nice``) does not count."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.loads: list[tuple[float, float]] = []
        self._clock = clock
        self._stop = Event()
        self._thread = Thread(target=self._look, name="cores", daemon=True)

    def __enter__(self) -> Self:
        psutil.cpu_times_percent()  # the first answer means nothing
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self.note()

    def note(self) -> None:
        """Look once."""
        of_all = psutil.cpu_times_percent()
        spare = of_all.idle + of_all.nice + getattr(of_all, "iowait", 0.0)
        self.loads.append((self._clock(), max(0.0, 1 - spare / 100)))
