"""P18: ten workflows of three users on one pool that has too few slots, with ADON and as Pegasus
comes; see docs/compare.md. Runs that ``python -m examples.compare.many`` has kept are not run
again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from examples.compare.many import (
    ALONE,
    FORECAST_GOAL,
    MEAN_GOAL,
    STATE,
    best_peer,
    compare,
    forecast_error,
    slowdown,
)
from examples.compare.schedule import CrowdRun
from examples.compare.ways import LEARNED, PEERS
from network_provisioner.base.errors import MissingError
from tests.bench import Figure, Tell, bench


@bench("P18")
def idle_network(tell: Tell) -> Iterable[Figure]:
    """An hour."""
    return _measured("idle", tell)


@bench("P18")
def busy_network(tell: Tell) -> Iterable[Figure]:
    """An hour."""
    return _measured("busy", tell)


def _measured(network: str, tell: Tell) -> Iterable[Figure]:
    try:
        runs = compare(STATE, tell, (network,))[network]
    except MissingError as error:
        tell(f"not measured: {error}")
        return
    yield from _of_network(f"{network} network", dict(runs))


def _of_network(network: str, runs: dict[str, CrowdRun]) -> Iterable[Figure]:
    alone, peer = runs.pop(ALONE.name), best_peer(runs)
    assert peer is not None

    def figure(
        name: str, unit: str, of: Callable[[CrowdRun], float], goal: float | None = None
    ) -> Figure:
        values: Mapping[str, float] = {way: of(run) for way, run in runs.items()}
        peers = {way: value for way, value in values.items() if way != LEARNED.name}
        return Figure(f"{network}: {name}", values[LEARNED.name], unit, "lower", goal, peers)

    def slow(run: CrowdRun) -> float:
        return slowdown(run, alone)

    least = min(slow(runs[way.name]) for way in PEERS)
    yield figure("mean time of a workflow", "s", lambda run: run.mean, MEAN_GOAL * peer.mean)
    yield figure("end of the last", "s", lambda run: run.end)
    yield figure("worst slow-down against running alone", "", slow, least)
    yield figure("moved between sites", "MB", lambda run: run.moved / 1e6)
    yield figure("reserved", "MB", lambda run: run.reserved / 1e6)
    yield figure("reserved and unused", "MB", lambda run: run.unused / 1e6)
    for name, run in runs.items():
        error = forecast_error(run)
        if error is not None:
            goal = 100 * FORECAST_GOAL if name == LEARNED.name else None
            words = f"{network}: {name}, expected end off by, 95th percentile"
            yield Figure(words, 100 * error, "%", "lower", goal)
