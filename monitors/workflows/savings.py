"""What ADON saved a workflow: by where its jobs were put, as was expected of it under the same
estimates, and by paths for its transfers, against what others reached without one. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from monitors.base.measurement import SMALL_BYTES, Measurement, number_in
from monitors.workflows.analysis import number
from network_provisioner.base.units import transfer_time

LEAST = 3  # transfers without a path that are believed
_PEGASUS = "random"  # Pegasus's own choice of sites, where nobody says otherwise


@dataclass(frozen=True, slots=True)
class PlacementSaving:
    """Seconds from the first job to the last as they were expected by the chosen ``policy``, and by
    Pegasus's own (``other``)."""

    policy: str
    expected_s: float
    other: str
    other_s: float
    saved_s: float


@dataclass(frozen=True, slots=True)
class PathSaving:
    """Of ``transfers`` with a path between two sites: how long they took, and how much less than at
    ``usual_bps``, the median of ``compared`` transfers without one; None where too few are known.
    Transfers that ran side by side count each for itself."""

    src: str
    dst: str
    transfers: int
    bytes: int
    seconds: float
    compared: int
    usual_bps: float | None
    saved_s: float | None


@dataclass(frozen=True, slots=True)
class Savings:
    """All of it; ``placement`` is None where ADON did not choose sites."""

    placement: PlacementSaving | None
    paths: Sequence[PathSaving]


def by_placement(dag: Measurement | None) -> PlacementSaving | None:
    """From a ``dag`` measurement."""
    plan = dag.details.get("plan") if dag is not None else None
    if not isinstance(plan, Mapping) or not isinstance(plan.get("portfolio"), Mapping):
        return None
    expected, other = number_in(plan.get("expected_s")), number_in(plan["portfolio"].get(_PEGASUS))
    if expected is None or other is None:
        return None
    policy = str(plan.get("policy") or "")
    return PlacementSaving(policy, expected, _PEGASUS, other, other - expected)


def by_paths(
    moved: Sequence[Measurement], all_between: Callable[[str], Sequence[Measurement]]
) -> list[PathSaving]:
    """From a workflow's ``job_transfer`` measurements; ``all_between`` gives those of all workflows
    of a pair of sites (``mu>tacc``)."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for transfer in moved:
        seconds = number(transfer, "seconds")
        if transfer.details.get("path") and seconds and transfer.value >= SMALL_BYTES:
            pairs.setdefault(transfer.subject, []).append((transfer.value, seconds))
    savings = []
    for pair, rows in sorted(pairs.items()):
        src, _, dst = pair.partition(">")
        rates = [
            rate
            for other in all_between(pair)
            if not other.details.get("path")
            and other.value >= SMALL_BYTES
            and (rate := number(other, "goodput_bps"))
        ]
        usual = median(rates) if len(rates) >= LEAST else None
        total, seconds = sum(size for size, _ in rows), sum(took for _, took in rows)
        saved = None if usual is None else transfer_time(total, usual) - seconds
        savings.append(
            PathSaving(src, dst, len(rows), int(total), seconds, len(rates), usual, saved)
        )
    return savings
