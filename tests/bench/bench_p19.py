"""P19: workflows one after another while others take most slots of a site; see docs/compare.md.
Runs that ``python -m examples.compare.slowed`` has kept are not run again."""

from __future__ import annotations

from collections.abc import Iterable

from examples.compare.slowed import AWARE, BLIND, GOAL, STATE, compare
from network_provisioner.base.errors import MissingError
from tests.bench import Figure, Tell, bench


@bench("P19")
def busy_compute(tell: Tell) -> Iterable[Figure]:
    """Half an hour."""
    try:
        runs = compare(STATE, tell)
    except MissingError as error:
        tell(f"not measured: {error}")
        return
    blind_s = runs[BLIND.name].end
    peers = {"without what is measured of compute": blind_s}
    name = "four workflows, a site that loses two of its three slots in the second"
    yield Figure(name, runs[AWARE.name].end, "s", "lower", GOAL * blind_s, peers)
