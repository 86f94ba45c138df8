"""What is on the switches, as far as is known.

Reading thousands of rules before every change would make changes slow, and believing too much would
make them wrong. So what was read or sent is believed for a while, under a *stamp*: a rule on each
switch that every writer overwrites before it changes anything. One small question tells whether a
switch still has the stamp that is believed; where it has another (a second broker changed it, or it
was restarted), all of it is read again.

A stamp is an epoch, which grows with every change of what is wanted, a count of the writer's
changes, and the writer's number. The count keeps two changes within one epoch apart: a broker may
have read the switch between them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from network_provisioner.controllers.backend import SwitchBackend
from network_provisioner.controllers.rules import (
    ANY_OWNER_MASK,
    EVERY_BIT,
    OURS,
    OWNER_MASK,
    OWNER_SHIFT,
    STAMP_OWNER,
    Changes,
    FlowRule,
    Key,
    TableEntry,
    is_stamp,
    stamp_rule,
)

LOG = logging.getLogger(__name__)
# Believed no longer than this, whatever the stamp says.
AUDIT_S = 300.0
# Of 48 bits; 30 are left for epochs: ten a second for three years.
_WRITER_BITS, _COUNT_BITS = 12, 6
_STAMP = STAMP_OWNER << OWNER_SHIFT


@dataclass(slots=True)
class _SwitchContents:
    rules: dict[Key, FlowRule]
    entries: dict[Key, TableEntry]
    stamp: int
    read_at: float


class SwitchState:
    """What is on each switch. Not thread-safe."""

    def __init__(self, backend: SwitchBackend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._writer = secrets.randbits(_WRITER_BITS)
        self._count = 0
        self._known: dict[int, _SwitchContents] = {}
        self._taken_over: set[int] = set()

    def refresh(self, dpids: Iterable[int]) -> bool:
        """Bring what is believed of these switches up to date.

        Returns whether anything had to be read anew. Raises ControllerError.
        """
        dpids = set(dpids)
        now = self._clock()
        unknown = {
            dpid
            for dpid in dpids
            if dpid not in self._known or not 0 <= now - self._known[dpid].read_at < AUDIT_S
        }
        sure = dpids - unknown
        if sure:
            stamps = self._stamps(sure)
            changed = {dpid for dpid in sure if stamps[dpid] != self._known[dpid].stamp}
            self._taken_over |= changed
            unknown |= changed
        if unknown:
            self._read(unknown)
        return bool(unknown)

    def forget(self, dpids: Iterable[int]) -> None:
        """Something may have changed there that nobody told."""
        for dpid in dpids:
            self._known.pop(dpid, None)

    def rules(self, dpids: Iterable[int]) -> list[FlowRule]:
        """Our rules on these switches, as believed."""
        return [rule for dpid in dpids for rule in self._known[dpid].rules.values()]

    def entries(self, dpids: Iterable[int]) -> list[TableEntry]:
        """Our groups and meters on these switches, as believed."""
        return [entry for dpid in dpids for entry in self._known[dpid].entries.values()]

    def epoch(self, dpids: Iterable[int]) -> int:
        """The latest epoch of any of these switches, 0 where none was stamped."""
        return max((_epoch(self._known[dpid].stamp) for dpid in dpids), default=0)

    def foreign(self, dpid: int) -> bool:
        """Whether the last to change a switch was somebody else."""
        return self._known[dpid].stamp & (1 << _WRITER_BITS) - 1 != self._writer

    def taken_over(self, dpids: Iterable[int]) -> bool:
        """Whether any of these has been changed by somebody else since this was asked last."""
        switches = self._taken_over & set(dpids)
        self._taken_over -= switches
        return bool(switches)

    def change(self, changes: Changes, epoch: int) -> None:
        """Change the switches step by step, each stamped before it is changed.

        Raises ControllerError; then nothing is believed of the switches that were to change.
        """
        now = self._clock()
        self._count = (self._count + 1) % (1 << _COUNT_BITS)
        stamp = (epoch << _COUNT_BITS | self._count) << _WRITER_BITS | self._writer
        stamped: set[int] = set()
        try:
            for step in changes.stages():
                batches = step.per_switch()
                for dpid in batches.keys() - stamped:
                    batches[dpid] = Changes(add=(stamp_rule(dpid, stamp),)) | batches[dpid]
                stamped |= batches.keys()
                self._backend.send(batches, now)
        except BaseException:
            self.forget(changes.per_switch())
            raise
        for dpid, change in changes.per_switch().items():
            known = self._known.get(dpid)
            if known is None:
                continue
            known.stamp = stamp
            known.rules.update((rule.key, rule) for rule in change.add)
            known.entries.update(
                (entry.key, entry) for entry in (*change.add_entries, *change.change_entries)
            )
            for rule in change.delete:
                known.rules.pop(rule.key, None)
            for entry in change.delete_entries:
                known.entries.pop(entry.key, None)

    def _stamps(self, dpids: set[int]) -> dict[int, int]:
        stamps, _ = self._backend.read_rules(dpids, _STAMP, OWNER_MASK, self._clock())
        return {
            dpid: max((seen.rule.cookie ^ _STAMP for seen in stamps[dpid]), default=0)
            for dpid in dpids
        }

    def _read(self, dpids: set[int]) -> None:
        self.forget(dpids)
        now = self._clock()
        rules_by_switch, odd = self._backend.read_rules(dpids, OURS, ANY_OWNER_MASK, now)
        entries = self._backend.read_entries(dpids)
        for dpid in dpids:
            if odd[dpid]:
                LOG.warning(
                    "%s had rules with cookies of ours that we would not make, removed: %s",
                    self._backend.label(dpid), ", ".join(f"{c:#x}" for c in sorted(odd[dpid])[:5]),
                )  # fmt: skip
            for cookie in odd[dpid]:
                self._backend.delete_by_cookie(dpid, cookie, EVERY_BIT)
            rules = [
                seen.rule for seen in rules_by_switch[dpid] if seen.rule.cookie not in odd[dpid]
            ]
            self._known[dpid] = _SwitchContents(
                {rule.key: rule for rule in rules if not is_stamp(rule)},
                {entry.key: entry for entry in entries[dpid]},
                max((rule.cookie ^ _STAMP for rule in rules if is_stamp(rule)), default=0),
                now,
            )


def _epoch(stamp: int) -> int:
    return stamp >> _WRITER_BITS + _COUNT_BITS
