"""Runs inside a box for the bench P4: two classes under the paper's load patterns.

    python -m tests.bench.classes_inside OPENVSWITCH FOLDER 4|6

Writes a line of JSON for each window that was measured: pattern, setup (strategy, or "link" for the
link without any queue), goodput of each class in b/s, and what their queues were sure of.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from network_provisioner.policies.strategies import sure_bps

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from dataplane_world import PORTS, WIDE, Plane, Reading

STRATEGIES = ("7-3", "10-3", "computed")
LINK = "link"
BOTH = tuple(PORTS)
ROUNDS = 3
SETTLE_S = 3.0  # until TCP has found the rate
WINDOW_S = 5.0
SAMPLES, SAMPLE_S = 10, 3.0  # Figure 7
SWITCHES, SWITCHED_S = 6, 3.0  # Figure 8


def main(programs: Path, folder: Path, version: int) -> None:
    """All patterns, each with every setup in turn, and again the other way round, so that all meet
    the same machine."""
    with Plane(programs, folder, version=version) as plane:
        for pattern, on in (("both", BOTH), ("q1", BOTH[:1]), ("q2", BOTH[1:])):
            for round_ in range(ROUNDS):
                for setup in (LINK, *STRATEGIES):
                    steady(plane, pattern, round_, setup, on)
        rng = random.Random(7)
        some: list[Iterable[str]] = [
            rng.choice((BOTH, BOTH, BOTH[:1], BOTH[1:])) for _ in range(SAMPLES)
        ]
        switched: list[Iterable[str]] = [BOTH[: 1 + i % 2] for i in range(SWITCHES)]
        for round_ in range(ROUNDS):
            for setup in STRATEGIES[:: (-1) ** round_]:
                changing(plane, "random", setup, some, SAMPLE_S)
                changing(plane, "switched", setup, switched, SWITCHED_S)


def steady(plane: Plane, pattern: str, round_: int, setup: str, on: Iterable[str]) -> None:
    """One window under a load that does not change."""
    enter(plane, setup)
    plane.send(on)
    if setup == LINK:
        links = plane.topology.whole_links
        plane.shaper.remove({d for link in links for d in (link.devices or {}).values()})
    time.sleep(SETTLE_S)
    sure, before = kept(plane), plane.load.read()
    time.sleep(WINDOW_S)
    tell(pattern, f"{round_}", setup, before, plane.load.read(), least(sure, kept(plane)))
    plane.send(())


def changing(
    plane: Plane, pattern: str, setup: str, loads: Iterable[Iterable[str]], lasts_s: float
) -> None:
    """One window for each load, from the moment it is switched."""
    enter(plane, setup)
    for number, on in enumerate(loads):
        before = plane.load.read()
        plane.send(on)
        sure = kept(plane)
        time.sleep(lasts_s)
        part = f"{number}:{'+'.join(on)}"
        tell(pattern, part, setup, before, plane.load.read(), least(sure, kept(plane)))
    plane.send(())


def enter(plane: Plane, setup: str) -> None:
    """Have a strategy enforced, or nothing."""
    if setup == LINK:
        plane.free()
    else:
        plane.enforce(setup)


def kept(plane: Plane) -> dict[str, float]:
    """What the queue of each class is sure of now, in b/s; empty without a policy."""
    now = time.time()
    live = [plane.broker.get(transit_id) for transit_id, _ in plane.transfers.live.values()]
    queues = [q for q in plane.policies.queues(live, now) if q.hop == WIDE]
    names = {plane.policies.queue_of(t, now): t.request.project for t in live}
    return {names[q.name]: sure_bps(q, queues) for q in queues if q.name in names}


def least(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What they were sure of all the time."""
    return {name: min(rate, after.get(name, rate)) for name, rate in before.items()}


def tell(
    pattern: str, part: str, setup: str, before: Reading, after: Reading, sure: dict[str, float]
) -> None:
    """One line."""
    row = {"pattern": pattern, "part": part, "setup": setup, "sure": sure}
    print(json.dumps(row | {"bps": after.since(before)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
