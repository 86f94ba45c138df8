"""Puts transits on the switches, with what each is given now, and copes where they refuse.

Whatever changes is collected, and told by :meth:`Installer.carry_out` in one ``apply`` for all of
it. Where the switches refuse, those that were about to start are told apart: one that they will
not take fails, and the others go on; where they take nothing at all, they wait or fail as whoever
started them said. Not thread-safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from network_provisioner import circuits
from network_provisioner.classes import Classes
from network_provisioner.controllers.base import ControllerError
from network_provisioner.decisions.breakeven import SetupTimes
from network_provisioner.decisions.reservations import Ledger
from network_provisioner.keeper import Keeper
from network_provisioner.model import ON_SWITCHES, Transit, TransitState
from network_provisioner.roster import Roster
from network_provisioner.shares import Shares
from network_provisioner.switchboard import Switchboard
from network_provisioner.topology import Topology
from network_provisioner.watching import Watch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """A transit to be put on the switches, what becomes of it where they do not answer, and the
    transits that moved away for it, as they were before."""

    transit: Transit
    otherwise: TransitState
    before: tuple[Transit, ...] = ()

    @property
    def at_once(self) -> bool:
        """Whether it starts because it was asked for just now."""
        return self.otherwise is TransitState.FAILED and not self.transit.start


class Installer:
    """Keeps shares and switches in step with what the lifecycle decides.

    ``step`` is told of every step; ``failed`` ends a transit that the switches do not take.
    """

    def __init__(
        self,
        topology: Topology,
        roster: Roster,
        ledger: Ledger,
        keeper: Keeper,
        shares: Shares,
        switches: Switchboard,
        classes: Classes,
        watch: Watch,
        clock: Callable[[], float],
        step: Callable[[str], None],
        failed: Callable[[Transit, float], None],
    ) -> None:
        self._topology = topology
        self._roster = roster
        self._ledger = ledger
        self._keeper = keeper
        self._shares = shares
        self._switches = switches
        self._classes = classes
        self._watch = watch
        self._clock = clock
        self._step = step
        self._failed = failed
        self._starts: list[Start] = []
        self.setup_times = SetupTimes()

    # -- what is wanted ----------------------------------------------------------------------

    @property
    def starting(self) -> bool:
        """Whether transits are about to be put on the switches."""
        return bool(self._starts)

    def start(self, start: Start) -> None:
        """Have a transit installed with the next change."""
        self._starts.append(start)

    def put_on(self, transit: Transit) -> None:
        """A transit is on the switches, or on other paths there."""
        transit.queue = self._classes.queue_of(transit)
        self._shares.put(transit)
        self._switches.want(transit)

    def take_off(self, transit: Transit) -> None:
        """A transit is to be on the switches no more, nor to start."""
        self._starts = [start for start in self._starts if start.transit is not transit]
        self._shares.drop(transit.id)
        self._switches.drop(transit.id)

    def move_back(self, before: Sequence[Transit], now: float) -> list[Transit]:
        """Put transits that were moved where they were, and what was reserved for them too."""
        for was in before:
            self._ledger.release(was.id)
        moved = [self._roster.all[was.id] for was in before]
        for transit, was in zip(moved, before, strict=True):
            transit.assign(was)
            held = circuits.reservation(transit, self._topology, max(now, transit.start))
            if held is not None:
                self._ledger.admit(held)
            if transit.state in ON_SWITCHES:
                self.put_on(transit)
        return moved

    # -- telling it --------------------------------------------------------------------------

    def carry_out(self, now: float, everything: bool = False) -> None:
        """Share anew, and tell the switches, once, all that has changed since the last time.

        ``everything``: also what may wait while many are live (:mod:`~.shares`), and the queues.
        """
        starts, self._starts = self._starts, []
        for start in starts:
            if start.transit.start <= now:
                self.put_on(start.transit)
        self._share(now, everything)
        if starts or (self._switches.dirty and not self._switches.waits(now)):
            known = self._switches.out_of_step
            try:
                self._tell(now)
            except ControllerError as error:
                self._refused(starts, error, known, now)
            else:
                self._installed([s for s in starts if s.transit.start <= now])

    def tell(self, now: float) -> None:
        """As :meth:`carry_out` where nothing is about to start. Raises ControllerError."""
        self._share(now, everything=False)
        self._tell(now)

    def begin(self, now: float) -> None:
        """Have the switches carry exactly what was live before. Raises ControllerError."""
        self._share(now, everything=True)
        self._tell(now)

    def _share(self, now: float, everything: bool) -> None:
        if everything or (self._shares.behind and self._shares.few):
            self._classes.assign(now, everything)
        for transit in self._shares.settle(now, everything):
            self._switches.want(transit)

    def _tell(self, now: float) -> None:
        self._step("the switches are about to be told")
        self._switches.tell(now)
        self._step("the switches were told")

    def _installed(self, starts: Sequence[Start]) -> None:
        for start in starts:
            # Its own look at the clock: the switches took their time since the request came.
            transit = start.transit
            if not transit.installed_at:
                transit.installed_at = self._clock()
                if start.at_once:
                    self.setup_times.note(transit.installed_at - transit.requested_at)
            transit.state = TransitState.INSTALLED
            self._watch.enter(transit)
        self._keeper.save([start.transit for start in starts])

    # -- refusals ----------------------------------------------------------------------------

    def _refused(
        self, starts: list[Start], error: ControllerError, known: bool, now: float
    ) -> None:
        """Nothing of the last change is on the switches. ``known``: nor was what went before."""
        log.warning("the switches refused: %s", error)
        for start in starts:
            self.take_off(start.transit)
            if start.before:
                self._ledger.release(start.transit.id)
                # Not before the end of the one they moved for, which has their room till then.
                self._keeper.save_with_next(self.move_back(start.before, now))
        self._share(now, everything=False)
        mended = bool(starts) and not known and self._told(now)
        if mended and len(starts) > 1:
            for start in starts:  # which of them was it?
                self._starts = [start]
                self.carry_out(now)
            return
        for start in starts:
            otherwise = TransitState.FAILED if mended else start.otherwise
            self._not_started(start.transit, otherwise, f"the switches refused: {error}", now)

    def _told(self, now: float) -> bool:
        try:
            self._tell(now)
        except ControllerError:
            return False
        return True

    def _not_started(
        self, transit: Transit, otherwise: TransitState, reason: str, now: float
    ) -> None:
        if otherwise is TransitState.FAILED:
            transit.reason = reason
            self._failed(transit, now)
        elif otherwise is TransitState.HELD:
            self._roster.enter(transit)  # to be started again
        else:
            self._ledger.release(transit.id)
            self._roster.leave(transit)
            circuits.leave(transit)
            transit.state, transit.lease_until, transit.reason = otherwise, 0.0, reason
            self._roster.enter(transit)
            self._keeper.save([transit])
