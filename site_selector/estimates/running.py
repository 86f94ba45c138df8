"""What runs now, and what of each resource it holds (thesis §3.2, Algorithm 2: R = total - held).

A resource is a name with an amount: the workers of a site, the bandwidth of a directed link in bits
per second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from network_provisioner.topology.graph import Topology
from site_selector.estimates.plans import Plan
from site_selector.estimates.world import EstimatedValue, PoolSite, SiteEstimate

Amounts = Mapping[str, float]


def workers_of(site: str) -> str:
    """The name of a site's workers as a resource."""
    return f"workers at {site}"


def bandwidth_of(src: str, dst: str) -> str:
    """The name of a directed link's bandwidth as a resource."""
    return f"bandwidth {src}>{dst}"


@dataclass(frozen=True, slots=True)
class Holding:
    """What a running application holds. ``layer`` is that of its network path, "" without one.
    A higher ``priority`` is more important."""

    application: str
    amounts: Amounts
    priority: int = 0
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """What runs now. ``pool``: what HTCondor says of its sites; a site that it does not name has no
    workers, unless it is none of HTCondor's: the submit host's own, or one of another ``pegasus:
    style``. ``in_use_bps`` on each directed link of ``topology``, ``use`` says in a few words what
    that is. None if no source was asked or none answered. ``held``: by applications of which
    HTCondor does not know. ``plans``: what workflows that were planned will take. ``whole``:
    nothing of it is taken off."""

    pool: Mapping[str, PoolSite] | None = None
    topology: Topology | None = None
    in_use_bps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    use: str = ""
    held: tuple[Holding, ...] = ()
    plans: tuple[Plan, ...] = ()
    whole: bool = False

    def with_held(self, held: Sequence[Holding]) -> Live:
        """And what these hold; of a link whichever is more, for the broker may know of them."""
        used = dict(self.in_use_bps)
        for name, rate in _sums(held).items():
            kind, _, link = name.partition(" ")
            if kind == "bandwidth":
                src, _, dst = link.partition(">")
                used[src, dst] = max(used.get((src, dst), 0.0), rate)
        use = " and ".join(filter(None, (self.use, "what applications hold")))
        return replace(self, in_use_bps=used, use=use, held=tuple(held)) if held else self

    def in_pool(self) -> tuple[Holding, ...]:
        """What the jobs that run hold of the pool."""
        busy = {
            workers_of(site): float(pool_site.slots - pool_site.idle_slots)
            for site, pool_site in (self.pool or {}).items()
            if pool_site.slots > pool_site.idle_slots
        }
        return (Holding("jobs that run", busy),) if busy else ()

    def idle(self) -> Live:
        """The same pool and network as if nothing of them were held."""
        return Live(self.pool, self.topology, whole=True)


IDLE = Live()


def what_is_left(estimate: SiteEstimate, site: str, live: Live) -> SiteEstimate:
    """A site without what running applications hold of it.

    Jobs that run keep the workers that they have, but not this user's share: as jobs end, HTCondor
    shares, but nothing of the slots whose jobs go on and on. What applications hold of which it
    does not know is theirs for an unknown time.
    """
    total = estimate.workers.value
    if live.whole:
        return estimate
    if total < 1:
        return replace(estimate, lacks=_lack(site, total, ()))
    held = {
        holding.application: count
        for holding in live.held
        if (count := holding.amounts.get(workers_of(site), 0.0)) > 0
    }
    left = total - sum(held.values())
    if left < 1:
        lacks = _lack(site, total, held)
        return replace(
            estimate, queue_wait=EstimatedValue(math.inf, "catalog", note=lacks), lacks=lacks
        )
    pool_site = (live.pool or {}).get(site)
    # Without a schedd, slots that are not idle may be free soon.
    busy = (
        0
        if pool_site is None or pool_site.ahead is None
        else pool_site.slots - pool_site.idle_slots
    )
    share, kept = (0.5, 0) if pool_site is None else (pool_site.share, min(pool_site.kept, busy))
    usable = max(1, left - busy, math.ceil((left - kept) * share))
    who = [*held, *([f"{busy} jobs that run"] if busy else [])]
    return estimate if usable == total else _with_workers(estimate, usable, ", ".join(who))


def _with_workers(estimate: SiteEstimate, count: float, who: str) -> SiteEstimate:
    remark = estimate.workers.note and f"; {estimate.workers.note}"
    note = f"of {estimate.workers.value:g}, less {who}{remark}"
    return replace(estimate, workers=replace(estimate.workers, value=count, note=note))


def _lack(site: str, total: float, held: Iterable[str]) -> str:
    by = f", held by {', '.join(held)}" if held else ""
    return f"{workers_of(site)}: 1 needed, 0 of {total:g} free{by}"


def _sums(held: Iterable[Holding]) -> dict[str, float]:
    out: dict[str, float] = {}
    for holding in held:
        for name, amount in holding.amounts.items():
            out[name] = out.get(name, 0.0) + amount
    return out
