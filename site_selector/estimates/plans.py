"""What a planned workflow will take, so that the next one is not placed as if it were alone.

A plan says from when to when it takes how many cores of each site, and which bytes go over which
path. Its times are seconds from when it was made, corrected by how many of its jobs have ended. It
ends by itself: at its last step, it takes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil, isfinite
from typing import Any

from network_provisioner.base.units import BITS_PER_BYTE
from site_selector.estimates.world import PathEstimate, PoolSite, World

TENTHS = 10
"""Of a workflow's jobs."""
_LEFT = 0.25  # of a site's workers, whatever is planned there
_LEAST_SHARE = 0.01  # of Γ_a, below which a plan's transfers are not worth a word

Steps = tuple[tuple[float, int], ...]
"""Cores from a second on, until the next; the last are 0."""
Flows = tuple[tuple[float, float, float], ...]
"""Bytes that move between two seconds: from, to, bytes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A workflow's plan, made ``at`` (Unix seconds). ``name`` tells it from others: its submit
    directory. ``cores`` by site and ``flows`` by path ("src>dst") in seconds from ``at``;
    ``tenths``: when each tenth of its jobs will have ended."""

    name: str
    at: float
    cores: Mapping[str, Steps] = field(default_factory=dict)
    flows: Mapping[str, Flows] = field(default_factory=dict)
    tenths: tuple[float, ...] = ()

    @property
    def until(self) -> float:
        """Unix second from which it takes nothing."""
        steps = (steps[-1][0] for steps in self.cores.values())
        flows = (flow[1] for flow in chain.from_iterable(self.flows.values()))
        return self.at + max(chain(steps, flows), default=0.0)

    def corrected(self, ended: float, at: float) -> Plan:
        """The plan moved in time, where at ``at`` (Unix seconds) this share of its jobs (0 to 1)
        had ended: a workflow that is late takes its resources later."""
        if not self.tenths:
            return self
        # Before the end of the next tenth nobody is late.
        done = min(TENTHS, int(ended * TENTHS + 1e-9))
        marks = (0.0, *self.tenths, self.tenths[-1])
        gone_s = at - self.at
        late_s = gone_s - min(max(gone_s, marks[done]), marks[done + 1])
        return replace(self, at=self.at + late_s)

    def as_details(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"cores": self.cores, "flows": self.flows, "tenths": self.tenths}


def plan_from(name: str, at: float, details: Mapping[str, Any]) -> Plan:
    """What :meth:`Plan.as_details` gave. Raises ValueError, TypeError, KeyError or AttributeError
    where it is something else."""
    cores = {
        str(site): tuple((float(s), int(n)) for s, n in steps)
        for site, steps in details["cores"].items()
    }
    flows = {
        str(path): tuple((float(a), float(b), float(size)) for a, b, size in rows)
        for path, rows in details["flows"].items()
    }
    if not all(steps and steps[-1][1] == 0 and _in_order(steps) for steps in cores.values()):
        raise ValueError("found cores without an end, expected steps in order down to 0")
    return Plan(name, at, cores, flows, tuple(map(float, details["tenths"])))


def _in_order(steps: Steps) -> bool:
    times = [at_s for at_s, _ in steps]
    return times == sorted(times) and all(n >= 0 for _, n in steps) and isfinite(times[-1])


def with_plans(
    world: World,
    plans: Iterable[Plan],
    pool: Mapping[str, PoolSite] | None,
    totals: Mapping[str, float],
    *,
    reserved: bool,
) -> World:
    """What is assumed, without what ``plans`` will take.

    At most three quarters of a site's workers (``totals``) and half of a path are others': HTCondor
    and TCP share. What HTCondor or, where bandwidth is ``reserved``, the broker know of already is
    not taken off again: jobs that run or wait, transfers that have begun.
    """
    living = [plan for plan in plans if plan.until > world.now]
    if not living:
        return world
    planned = {
        site: steps
        for site, estimate in world.sites.items()
        if (
            steps := _taken(
                [(plan.at - world.now, plan.cores[site]) for plan in living if site in plan.cores],
                _seen(None if pool is None else pool.get(site)),
                int(estimate.workers.value)
                - ceil(_LEFT * totals.get(site, estimate.workers.value)),
            )
        )
    }
    sites = {
        site: replace(
            estimate, workers=estimate.workers.noted(_cores_note(planned[site], len(living)))
        )
        if site in planned
        else estimate
        for site, estimate in world.sites.items()
    }
    sharing: dict[tuple[str, str], list[str]] = {}
    for pair, path in world.paths.items():
        sharing.setdefault(path.bottleneck or pair, []).append(">".join(pair))
    rates_bps = {
        line: _rate_bps(living, names, world.now, reserved) for line, names in sharing.items()
    }
    paths = {
        pair: _less(path, rates_bps[path.bottleneck or pair]) for pair, path in world.paths.items()
    }
    return replace(world, sites=sites, paths=paths, planned=planned)


def _seen(here: PoolSite | None) -> float:
    """Cores that HTCondor's jobs there have or wait for now."""
    if here is None or here.ahead is None:
        return 0.0
    return here.slots - here.idle_slots + here.ahead


def _taken(steps: Sequence[tuple[float, Steps]], seen: float, most: int) -> Steps:
    """The sum of step functions, each that many seconds later, beyond what is ``seen`` and at most
    ``most``, from now on; empty if nothing is left of it."""
    times = sorted({0.0, *(max(0.0, late_s + at_s) for late_s, row in steps for at_s, _ in row)})
    taken: list[tuple[float, int]] = []
    for now in times:
        cores = sum(_at(row, now - late_s) for late_s, row in steps)
        extra = max(0, min(most, ceil(cores - seen)))
        if extra != (taken[-1][1] if taken else 0):
            taken.append((now, extra))
    return tuple(taken)


def _at(steps: Steps, at_s: float) -> int:
    index = bisect_right(steps, at_s, key=lambda step: step[0])
    return steps[index - 1][1] if index else 0


def _rate_bps(plans: Iterable[Plan], paths: Iterable[str], now: float, reserved: bool) -> float:
    """What plans' transfers over ``paths`` need of the line that these share, on average until the
    last of them has ended."""
    rest, last_s = 0.0, 0.0
    for plan in plans:
        for start_s, end_s, size in chain.from_iterable(plan.flows.get(p, ()) for p in paths):
            begin, end = plan.at + start_s - now, plan.at + end_s - now
            if end <= 0 or (reserved and begin <= 0):
                continue
            share = 1.0 if begin >= 0 or end <= begin else end / (end - begin)
            rest, last_s = rest + size * share, max(last_s, end)
    return rest * BITS_PER_BYTE / last_s if last_s > 0 else 0.0


def _less(path: PathEstimate, rate_bps: float) -> PathEstimate:
    whole = path.gamma_a
    if rate_bps < _LEAST_SHARE * whole.value:
        return path
    left = max(whole.value - rate_bps, whole.value / 2)
    return replace(path, gamma_a=whole.noted("less what other workflows plan to move", left))


def _cores_note(steps: Steps, count: int) -> str:
    most, until_s = max(n for _, n in steps), steps[-1][0]
    return f"up to {most} planned for other workflows within {until_s:.3g} s ({count} planned)"
