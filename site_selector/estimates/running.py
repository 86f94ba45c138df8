"""What runs now, and what of each resource it holds (thesis §3.2, Algorithm 2: R = total - held).

A resource is a name with an amount: the workers of a site, the bandwidth of a directed link in bits
per second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from network_provisioner.topology.graph import Topology
from site_selector.estimates.beliefs import Belief, PoolSite, SiteBelief

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
    that is. None where nobody was asked or nobody answered. ``held``: by applications of which
    HTCondor does not know. ``whole``: nothing of it is taken off."""

    pool: Mapping[str, PoolSite] | None = None
    topology: Topology | None = None
    in_use_bps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    use: str = ""
    held: tuple[Holding, ...] = ()
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
        """What runs in the pool, by application; all that is none is one."""
        found: dict[str, dict[str, float]] = {}
        for site, told in (self.pool or {}).items():
            for name, (count, _) in {**told.held, "other jobs": (told.others, None)}.items():
                if count:
                    found.setdefault(name, {})[workers_of(site)] = float(count)
        return tuple(Holding(name, amounts) for name, amounts in found.items())

    def idle(self) -> Live:
        """The same pool and network as if nobody held anything of them."""
        return Live(self.pool, self.topology, whole=True)

    def taken(self, site: str) -> dict[str, tuple[float, float]]:
        """The workers that each application holds at a site, and until when (Unix second): of those
        in the pool that do not know, as long as jobs there take; of others nobody knows."""
        told = (self.pool or {}).get(site)
        found = {
            name: (float(count), until or 0.0)
            for name, (count, until) in (told.held if told is not None else {}).items()
        }
        for one in self.held:
            found[one.application] = (one.amounts.get(workers_of(site), 0.0), math.inf)
        return {name: (count, until) for name, (count, until) in found.items() if count > 0}


IDLE = Live()


def what_is_left(belief: SiteBelief, site: str, live: Live, now: float) -> SiteBelief:
    """A site without what running applications hold of it.

    Of what they leave, other people's jobs keep what they have, but no more than half: HTCondor
    shares. Where no worker is left, T_q lasts until an application is expected to end.
    """
    held, total = live.taken(site), belief.workers.value
    told = (live.pool or {}).get(site)
    others = 0 if told is None else told.others
    left = total - sum(count for count, _ in held.values())
    if live.whole:
        return belief
    if total < 1:
        return replace(belief, lacks=_lack(site, total, ()))
    if left >= 1:
        usable = max(left - others, math.ceil(left / 2))
        who = [*held, *([f"{others} other jobs"] if others else [])]
        note = f"of {total:g}, beside {', '.join(who)}"
        return belief if usable == total else _with_workers(belief, usable, note)
    at = math.inf
    for count, until in sorted(held.values(), key=lambda one: one[1]):
        left, at = left + count, until
        if left >= 1:
            break
    lacks = _lack(site, total, held)
    wait = max(at - now, belief.queue_wait.value)
    known = "schedd" if math.isfinite(at) else "catalog"
    belief = replace(belief, queue_wait=Belief(wait, known, now, note=lacks), lacks=lacks)
    return _with_workers(belief, left if math.isfinite(at) else total, lacks)


def _with_workers(belief: SiteBelief, count: float, note: str) -> SiteBelief:
    workers = replace(belief.workers, value=count, note=note)
    return replace(belief, workers=workers)


def _lack(site: str, total: float, held: Iterable[str]) -> str:
    by = f", held by {', '.join(held)}" if held else ""
    return f"{workers_of(site)}: 1 needed, 0 of {total:g} free{by}"


def _sums(held: Iterable[Holding]) -> dict[str, float]:
    out: dict[str, float] = {}
    for one in held:
        for name, amount in one.amounts.items():
            out[name] = out.get(name, 0.0) + amount
    return out
