"""Who used how much of the network: bytes and byte-seconds per user, project and experiment.

``bytes``         what transfers moved: as they reported it, where that can be, else as the source's
                  switch counted
``byte_seconds``  what they were given: the granted rate in bytes per second, integrated over the
                  seconds it was held. As a core-second is one core for one second, one of these is
                  a byte per second for one second, so it counts the bytes that could have been
                  moved. ``bytes`` may be more: what is idle can be borrowed.
``seconds``       how long paths were held
``judged_s``      for how much of it the network was seen to keep its promise or break it, and
``broken_s``      for how much it broke it

A transfer counts once, under the instant its transit ended, so periods that follow each other add
up to the whole. Nothing is written for it: the store's transits are the accounts, each there once
under its id, so no crash, no repeated release and no second broker can count one twice.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from network_provisioner.base.csv_cells import csv_cell
from network_provisioner.base.errors import InputError
from network_provisioner.base.model import ENDED, ON_SWITCHES, KeptPromise, Transit
from network_provisioner.base.units import bytes_of
from network_provisioner.policies.policy import TYPES


@dataclass(frozen=True, slots=True)
class Usage:
    """What one user, project or experiment used; ``name`` is "" for those who said none."""

    name: str
    transits: int = 0
    bytes: int = 0
    byte_seconds: float = 0.0
    seconds: float = 0.0
    judged_s: float = 0.0
    broken_s: float = 0.0

    def and_also(self, transit: Transit) -> Usage:
        """With one more transit."""
        kept = transit.usage.kept or KeptPromise()
        return Usage(
            self.name,
            self.transits + 1,
            self.bytes + transferred_bytes(transit),
            self.byte_seconds + transit.usage.byte_seconds,
            self.seconds + held_s(transit),
            self.judged_s + kept.kept_s + kept.less_s + kept.broken_s,
            self.broken_s + kept.broken_s,
        )

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        return asdict(self)


def meter(transit: Transit, now: float) -> None:
    """Add what a transit was given since this was last called, up to Unix second ``now``.

    To be called before every change of ``granted_bps``, and when it ends; more often is harmless.
    The time on the switches counts, no later than its lease.
    """
    if transit.state not in ON_SWITCHES:
        return
    grant, usage = transit.grant, transit.usage
    until = min(now, grant.lease_until) if grant.lease_until else now
    since = max(usage.metered_at, grant.installed_at)
    if until > since:
        usage.byte_seconds += bytes_of(grant.granted_bps) * (until - since)
        usage.metered_at = until


def transferred_bytes(transit: Transit) -> int:
    """What its transfer moved: its own report, where that can be, else the switch's count."""
    usage = transit.usage
    return usage.switch_bytes if usage.doubt else usage.bytes or usage.switch_bytes


def held_s(transit: Transit) -> float:
    """How long an ended transit was on the switches, in seconds: no longer than its lease."""
    if not transit.grant.installed_at:
        return 0.0
    end = ended_at(transit)
    if transit.grant.lease_until:
        end = min(end, transit.grant.lease_until)
    return max(0.0, end - transit.grant.installed_at)


def ended_at(transit: Transit) -> float:
    """The Unix second under which an ended transit counts. One that never had a path counts when
    its transfer was reported, else when it was asked for."""
    return transit.grant.released_at or transit.request.requested_at


def usage(
    transits: Iterable[Transit],
    by: str,
    since: float = 0.0,
    until: float = float("inf"),
) -> list[Usage]:
    """What ended from ``since`` up to before ``until``, by user, project or experiment; most bytes
    first. Raises InputError for another ``by``."""
    if by not in TYPES:
        raise InputError(f"accounts by {by!r}, expected by one of {', '.join(TYPES)}")
    rows: dict[str, Usage] = {}
    for transit in transits:
        if transit.state in ENDED and since <= ended_at(transit) < until:
            name = getattr(transit.request, by)
            rows[name] = rows.get(name, Usage(name)).and_also(transit)
    return sorted(rows.values(), key=lambda u: (-u.bytes, -u.byte_seconds, u.name))


def as_csv(rows: Sequence[Usage], by: str) -> str:
    """With a line of names; ``by`` is the first column."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((by, *(column.name for column in fields(Usage)[1:])))
    for row in rows:
        # Whole byte-seconds: a spreadsheet needs no more, and 1e+12 is no number to some.
        writer.writerow(
            (
                csv_cell(row.name),
                row.transits,
                row.bytes,
                round(row.byte_seconds),
                *(f"{seconds:.3f}" for seconds in (row.seconds, row.judged_s, row.broken_s)),
            )
        )
    return out.getvalue()


class RecentUse:
    """Who moved how much lately. A byte counts half after ``half_life_s``; each transit once.

    Thread-safe. Old ones are forgotten, so it stays small.
    """

    def __init__(self, half_life_s: float = 1800.0) -> None:
        self._half_life_s = half_life_s
        self._noted: dict[str, Transit] = {}
        self._lock = threading.Lock()

    def note(self, transits: Iterable[Transit], now: float) -> None:
        """Take in ended transits; one that is known is replaced, as its report may come late."""
        oldest = now - 10 * self._half_life_s
        with self._lock:
            for transit in transits:
                if (
                    transit.state in ENDED
                    and transferred_bytes(transit)
                    and ended_at(transit) >= oldest
                ):
                    self._noted[transit.id] = transit
            self._noted = {i: t for i, t in self._noted.items() if ended_at(t) >= oldest}

    def used_bytes(self, by: str, now: float, live: Iterable[Transit] = ()) -> dict[str, float]:
        """Bytes by user, project or experiment, each weighed by its age at ``now``; of ``live``
        transits what they were given so far."""
        used: dict[str, float] = {}
        with self._lock:
            noted = list(self._noted.values())
        for transit in noted:
            name = getattr(transit.request, by)
            age = max(0.0, now - ended_at(transit)) / self._half_life_s
            used[name] = used.get(name, 0.0) + transferred_bytes(transit) * 2.0**-age
        for transit in live:
            name = getattr(transit.request, by)
            used[name] = used.get(name, 0.0) + so_far_bytes(transit, now, self._half_life_s)
        return used


def so_far_bytes(transit: Transit, now: float, at_most_s: float = float("inf")) -> float:
    """What a live transit has moved by now, at most in the last ``at_most_s`` seconds, if it goes
    as fast as it was granted; no more than its size."""
    if not transit.grant.installed_at:
        return 0.0
    elapsed = min(max(0.0, now - transit.grant.installed_at), at_most_s)
    n_bytes = bytes_of(transit.grant.granted_bps) * elapsed
    size_bytes = transit.request.size_bytes
    return n_bytes if size_bytes is None else min(n_bytes, float(size_bytes))
