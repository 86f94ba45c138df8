"""A link with queues as a fluid: what each queue carries of what is offered to it. For tests.

Written from what :class:`~network_provisioner.base.controller.Queue` promises, not from how it is
made on a device: rates first, then what is idle goes to the lowest prio, in proportion to rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from network_provisioner.base.controller import Queue

_LEAST_BPS = 1e-3  # below it nothing is left to hand out


def carried(
    queues: Sequence[Queue], capacity_bps: float, offered: Mapping[str, float]
) -> dict[str, float]:
    """Bits per second that each queue's own traffic gets."""
    by_name = {q.name: q for q in queues}
    children = {q.name: [c for c in queues if c.parent == q.name] for q in queues}
    sure = {q.name: q.rate_bps - sum(c.rate_bps for c in children[q.name]) for q in queues}
    got = {name: min(offered[name], max(0.0, rate)) for name, rate in sure.items()}

    def above(name: str) -> list[str]:
        chain = [name]
        while by_name[chain[-1]].parent:
            chain.append(by_name[chain[-1]].parent)
        return chain

    def under(name: str) -> float:
        return got[name] + sum(under(child.name) for child in children[name])

    def may_add(name: str) -> float:
        rooms = [by_name[n].ceil_bps - under(n) for n in above(name)]
        left = capacity_bps - sum(got.values())
        return max(0.0, min(offered[name] - got[name], left, *rooms))

    for prio in sorted({q.prio for q in queues}):
        names = [q.name for q in queues if q.prio == prio]
        for _ in range(10_000):
            hungry = {n: max(sure[n], 1.0) for n in names if may_add(n) > _LEAST_BPS}
            if not hungry:
                break
            # Small enough a step that nobody gets more than their part before somebody is full.
            step = min(may_add(n) / weight for n, weight in hungry.items())
            total = sum(hungry.values())
            step = min(step, (capacity_bps - sum(got.values())) / total)
            for name, weight in hungry.items():
                got[name] += min(step * weight, may_add(name))
    return got
