"""P3, allocation: what elastic requests get, how far that is from the optimum, and what it costs.

The optimum is found by linear programmes, on fewer demands than the clock is held against, because
they take minutes for what filling links does in milliseconds. The other peer is progressive filling
as textbooks have it: one full link after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from random import Random
from statistics import median

from network_provisioner.state.elastic import MaxMinShares, RateDemand
from network_provisioner.topology.graph import Hop, Topology
from tests.bench import Figure, Tell, bench
from tests.bench.bench_p3 import SITES, make_network, timed
from tests.bench.maxmin_lp import maxmin

DEMANDS = 10_000
COMPARED = 200
CHANGES = 30
CEILINGS_BPS = (150e6, 1e9, 10e9)
MINIMA_BPS = (1e6, 10e6, 25e6)


def capacities(topology: Topology, part: float = 1.0) -> dict[Hop, float]:
    """Of both directions of all links."""
    both = ((ends, link) for link in topology.links for ends in ((link.a, link.b),
                                                                 (link.b, link.a)))  # fmt: skip
    return {ends: link.capacity_bps * part for ends, link in both}


def make_demands(
    rng: Random, topology: Topology, capacity: dict[Hop, float], count: int, priorities: list[int]
) -> list[RateDemand]:
    """Between sites of which some are more sought after, on one of their paths with room."""
    weights = [1 / (1 + i) ** 0.5 for i in range(SITES)]
    left, made = dict(capacity), []
    paths_of = cache(partial(topology.candidate_paths, limit=4))
    while len(made) < count:
        src, dst = rng.choices(topology.sites, weights, k=2)
        if src == dst:
            continue
        path = rng.choice(paths_of(src, dst))
        low = rng.choice(MINIMA_BPS)
        if all(left[hop] >= low for hop in path.hops):
            for hop in path.hops:
                left[hop] -= low
            high = low + rng.choice(CEILINGS_BPS)
            made.append(RateDemand(str(len(made)), path.hops, low, high, rng.choice(priorities)))
    return made


def textbook(capacity: dict[Hop, float], demands: list[RateDemand]) -> dict[str, float]:
    """One link, or one demand that has its maximum, after the other."""
    rates = {d.id: d.min_bps for d in demands}
    left = dict(capacity)
    for demand in demands:
        for hop in demand.hops:
            left[hop] -= demand.min_bps
    for priority in sorted({d.priority for d in demands}, reverse=True):
        active = {d.id: d for d in demands if d.priority == priority}
        on: dict[Hop, set[str]] = {}
        for demand in active.values():
            for hop in demand.hops:
                on.setdefault(hop, set()).add(demand.id)
        while active:
            level, full = min(((left[hop] / len(ids), hop) for hop, ids in on.items()))
            least = min(active.values(), key=lambda d: d.max_bps - d.min_bps)
            span = least.max_bps - least.min_bps
            for name in [least.id] if span <= level else list(on[full]):
                demand = active.pop(name)
                rates[name] += min(span, level)
                for hop in demand.hops:
                    left[hop] -= min(span, level)
                    on[hop].discard(name)
                    if not on[hop]:
                        del on[hop]
    return rates


def equal_parts(capacity: dict[Hop, float], demands: list[RateDemand]) -> dict[str, float]:
    """Every demand the same part of each link's rest, whatever others could not take."""
    users: dict[Hop, int] = {}
    left = dict(capacity)
    for demand in demands:
        for hop in demand.hops:
            users[hop] = users.get(hop, 0) + 1
            left[hop] -= demand.min_bps
    return {
        d.id: min(d.max_bps, d.min_bps + min(left[hop] / users[hop] for hop in d.hops))
        for d in demands
    }


def worst(rates: dict[str, float], best: dict[str, float]) -> float:
    """The largest deviation of one rate from another, in per cent."""
    return max(100 * abs(rates[name] - rate) / rate for name, rate in best.items())


@bench("P3")
def allocation(tell: Tell) -> Iterable[Figure]:
    """Deviation from max-min fairness, and milliseconds."""
    rng = Random(5)
    topology = make_network(rng)
    narrow = capacities(topology, 0.02)
    for words, priorities in (("", [0]), (", three priorities", [0, 5, 9])):
        few = make_demands(rng, topology, narrow, COMPARED, priorities)
        tell(f"{COMPARED} demands{words} by linear programmes")
        best = maxmin(narrow, few)
        sharing = MaxMinShares(narrow)
        sharing.update(few)
        plain = {"an equal part of each link": worst(equal_parts(narrow, few), best)}
        yield Figure(
            f"largest deviation of a rate from max-min fairness, {COMPARED} demands{words}",
            worst(sharing.rates(), best),
            "%",
            better="lower",
            goal=1.0,
            peers=plain if len(priorities) == 1 else {},
        )
    whole = capacities(topology)
    many = make_demands(rng, topology, whole, DEMANDS, [0, 0, 5, 9])
    tell(f"{DEMANDS:,} demands, {CHANGES} changes")
    sharing = MaxMinShares(whole)
    sharing.update(many)
    sharing.rates()
    spent = []
    for demand in rng.sample(many, CHANGES):
        sharing.update([], [demand.id])
        spent.append(timed(sharing.rates)[1])
        sharing.update([demand])
        spent.append(timed(sharing.rates)[1])
    tell("the same as textbooks have it")
    _, slow = timed(lambda: textbook(whole, many))
    yield Figure(
        f"sharing {DEMANDS:,} demands anew after a change, median",
        median(spent),
        "ms",
        better="lower",
        peers={"one full link after the other": slow},
    )
