"""What is played, as a :class:`~site_selector.problem.Problem` of site selection. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from network_provisioner.base.units import transfer_time
from pegasus_hooks.advance.beliefs import Beliefs
from site_selector.cost import Array
from site_selector.estimates.believe import DEFAULT_WORKERS
from site_selector.problem import Problem

Place = tuple[str, bool]
"""A site, and whether its door is meant, where nobody waits for a worker."""


@dataclass(slots=True)
class Parts:
    """Jobs in topological order, each with its place, seconds and parents; and files, each with the
    job that sends it, the job that receives it, and its bytes."""

    places: dict[Place, int] = field(default_factory=dict)
    at: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    parents: list[tuple[int, ...]] = field(default_factory=list)
    files: list[tuple[int, int, float]] = field(default_factory=list)

    def add(self, place: Place, seconds: float, after: Sequence[int]) -> int:
        """One more job; its number."""
        self.at.append(self.places.setdefault(place, len(self.places)))
        self.seconds.append(seconds)
        self.parents.append(tuple(after))
        return len(self.at) - 1


def problem_of(parts: Parts, beliefs: Beliefs, lag_s: float) -> Problem:
    """The problem in which every job has one place to be; ``lag_s`` comes before every T_q."""
    places, jobs, files = len(parts.places), len(parts.at), len(parts.files)
    children: list[list[int]] = [[] for _ in range(jobs)]
    for child, above in enumerate(parts.parents):
        for parent in above:
            children[parent].append(child)
    writes: list[tuple[int, ...]] = [()] * jobs
    reads: list[tuple[int, ...]] = [()] * jobs
    for file, (send, got, _) in enumerate(parts.files):
        writes[send], reads[got] = (file,), (file,)
    per_byte = _seconds_per_byte([site for site, _ in parts.places], beliefs)
    return Problem(
        jobs=tuple(map(str, range(jobs))),
        places=tuple(site for site, _ in parts.places),
        n_sites=places,
        files=tuple(map(str, range(files))),
        parents=tuple(parts.parents),
        children=tuple(map(tuple, children)),
        reads=tuple(reads),
        writes=tuple(writes),
        readers=tuple((got,) for _, got, _ in parts.files),
        producer=tuple(send for send, _, _ in parts.files),
        holders=((),) * files,
        returns=(False,) * files,
        size=tuple(size for _, _, size in parts.files),
        guessed=(False,) * files,
        allowed=tuple((place,) for place in parts.at),
        level=(0,) * jobs,
        input_bytes=np.zeros(jobs),
        compute_s=np.repeat(np.array(parts.seconds)[:, None], places, axis=1),
        queue_s=np.array(
            [0.0 if door else beliefs.queue_s.get(site, 0.0) + lag_s for site, door in parts.places]
        ),
        workers=tuple(
            jobs if door else beliefs.workers.get(site, DEFAULT_WORKERS)
            for site, door in parts.places
        ),
        seconds_per_byte=per_byte,
        occupied_per_byte=per_byte,
        setup_s=np.zeros((places, places)),
        output=-1,
        compute=(),
    )


def _seconds_per_byte(names: list[str], beliefs: Beliefs) -> Array:
    out = np.zeros((len(names), len(names)))
    for a, src in enumerate(names):
        for b, dst in enumerate(names):
            if src != dst:
                out[a, b] = transfer_time(1, beliefs.rate((src, dst)))
    return out
