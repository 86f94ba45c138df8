"""What circuits and queues ask of every shaped device. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from network_provisioner.controllers.base import Queue
from network_provisioner.controllers.groups import Group, Lane, Pair, by_hop
from network_provisioner.controllers.marks import ACKS, SHARED, class_key
from network_provisioner.controllers.shaping import LAST_PRIO, Asked, DeviceShape, share_out
from network_provisioner.errors import InputError
from network_provisioner.topology import Link, Topology


def device_shapes(
    topology: Topology,
    shaped: frozenset[Pair],
    groups: Sequence[Group],
    queues: Sequence[Queue],
) -> tuple[DeviceShape, ...]:
    """The shape of the device of every ``shaped`` link direction, in a fixed order.

    Queues on other links are nobody's. Raises InputError for queues that make no sense.
    """
    for queue in queues:
        _check_queue(topology, queue)
    crossing = by_hop(groups, shaped)
    shapes = []
    for a, b in sorted(shaped):
        link = topology.link(a, b)
        here = [q for q in queues if q.hop == (a, b)]
        asked = _asked(topology, link, crossing.get((a, b), []), {q.name for q in here})
        classes, tree = share_out(link.capacity_bps, asked, here)
        device = (link.devices or {})[a]
        shapes.append(DeviceShape(a, device, link.capacity_bps, link.delay_s, classes, tree))
    return tuple(shapes)


def _asked(
    topology: Topology, link: Link, there: Sequence[tuple[Group, Lane]], queues: set[str]
) -> list[Asked]:
    """What every mark on a link direction asks for; several groups may share one."""
    by_mark: dict[int, list[tuple[Group, Lane]]] = {}
    for group, lane in there:
        if lane.mark:
            by_mark.setdefault(lane.mark, []).append((group, lane))
    asked = []
    for mark, users in sorted(by_mark.items()):
        group, lane = users[0]
        key = class_key(topology, group, lane) or ""
        shared = key.startswith(SHARED)
        queue = group.queue if group.data and group.queue in queues else ""
        if shared and not queue:
            continue  # members of a queue that this link does not have are best effort here
        ceil = sum(
            lane.max_bps + lane.ack_bps if group.data else link.capacity_bps
            for group, lane in users
        )
        asked.append(
            Asked(
                mark,
                math.fsum(lane.min_bps for _, lane in users),
                math.fsum(lane.ack_bps for _, lane in users),
                math.inf if shared else ceil,
                queue,
                shared=shared,
                prio=0 if key.startswith(ACKS) or any(g.sure for g, _ in users) else LAST_PRIO,
            )
        )
    return asked


def _check_queue(topology: Topology, queue: Queue) -> None:
    label = f"queue {queue.name!r} on link {'>'.join(queue.hop)}"
    if not queue.name:
        raise InputError(f"a queue on link {'>'.join(queue.hop)} has no name, expected one")
    topology.link(*queue.hop)
    if not (math.isfinite(queue.rate_bps) and queue.rate_bps >= 0):
        raise InputError(f"{label} has rate_bps {queue.rate_bps!r}, expected 0 b/s or more")
    if math.isnan(queue.ceil_bps) or queue.ceil_bps < queue.rate_bps or queue.ceil_bps <= 0:
        raise InputError(
            f"{label} has ceil_bps {queue.ceil_bps!r}, expected more than 0 b/s and no less than "
            f"its rate_bps {queue.rate_bps!r}"
        )
