"""Gives back what runs need no more, and asks for the path of their output.

A hook asks for the path of a run's input and ends. Everything after that is done here: whoever is
killed, and whenever, a run's paths are given back within seconds of the end of what they were for.
What the broker holds is asked of the broker, so a watcher that was killed goes on where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from condor_plugins.transfers import asks
from condor_plugins.transfers.course import Courses
from condor_plugins.transfers.decide import (
    Known,
    Queued,
    Release,
    Renew,
    of_schedd,
    settling,
    to_do,
)
from condor_plugins.transfers.events import Happening
from condor_plugins.transfers.ids import parsed
from condor_plugins.transfers.outputsize import Outputs
from network_provisioner.base.hookconfig import HookConfig
from network_provisioner.client import Asked
from network_provisioner.errors import AdonError, BrokerError
from network_provisioner.model import LIVE, Transit, TransitRequest, TransitState

log = logging.getLogger(__name__)

SWEEP_S = 3.0  # between two looks while no event comes
# How long a run is remembered once it is over: a little for those whose last event comes late, and
# longer while the broker has to be told of it.
_KEPT_S, _KEPT_UNTOLD_S = 60.0, 900.0
_KEPT_MARKS_S = 2 * _KEPT_UNTOLD_S
_MOST_AT_ONCE = 200  # requests in one call
_AWAY = ("unreachable", "timeout", "bad_answer")


class Events(Protocol):
    """HTCondor's event log."""

    def read(self) -> Iterable[Happening]:
        """What is new in it. Raises InputError where it cannot be read."""
        ...


class Schedd(Protocol):
    """The access point's own. Raises AdonError where it cannot be asked."""

    def name(self) -> str:
        """Its name, as it begins the GlobalJobId of its jobs."""
        ...

    def jobs(self, names: Iterable[str]) -> Mapping[str, Queued]:
        """Those of these jobs (GlobalJobIds with - for #) that are in its queue."""
        ...


class Broker(Protocol):
    """The part of ``network_provisioner.client.BrokerClient`` that is used. Raises BrokerError."""

    def ask(self, requests: Sequence[TransitRequest], /) -> list[Asked]:
        """Ask for several paths at once."""
        ...

    def list(self, state: str | None = None) -> list[Transit]:
        """The transits in a state."""
        ...

    def release(
        self, transit_id: str, bytes_moved: int = 0, seconds: float = 0.0, outcome: str = ""
    ) -> Transit:
        """Give a transit back."""
        ...

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        """Let a lease last longer."""
        ...


class Watcher:
    """One access point's. ``now`` gives Unix seconds."""

    def __init__(
        self,
        config: HookConfig,
        broker: Broker,
        schedd: Schedd,
        events: Events,
        now: Callable[[], float],
    ) -> None:
        self._config, self._broker, self._schedd = config, broker, schedd
        self._events, self._now = events, now
        self._courses, self._outputs = Courses(), Outputs()
        self._learned: set[str] = set()  # runs whose output was taken into account
        self._asked: dict[str, float] = {}  # what was asked or told, and when
        self._next, self._since = 0.0, now()
        self._said: dict[str, str] = {}

    def step(self) -> None:
        """Look once, and do what is due. Raises nothing for what a broker or HTCondor does."""
        happened = self._read()
        self._courses.feed(happened)
        now = self._now()
        waits = SWEEP_S >= self._next - now > 0  # a clock set back must not put it off
        if waits and not happened and not settling(self._courses, now):
            return
        self._next = now + SWEEP_S
        self._learn()
        kept_s = _KEPT_S
        try:
            self._sweep(now)
            self._said.pop("broker", None)
        except BrokerError as error:
            self._complain("broker", error)
            kept_s = _KEPT_UNTOLD_S
        self._courses.forget(now, kept_s)

    def _read(self) -> list[Happening]:
        try:
            happened = list(self._events.read())
        except AdonError as error:
            self._complain("events", error)
            return []
        self._said.pop("events", None)
        return happened

    def _learn(self) -> None:
        names = set()
        for course in self._courses:
            name = course.run.transit("out")
            names.add(name)
            if course.sent_bytes is not None and name not in self._learned:
                self._outputs.learn(course.ad, course.sent_bytes)
                self._learned.add(name)
        self._learned &= names

    def _sweep(self, now: float) -> None:
        for host in asks.nameless(self._courses):
            self._complain(host, AdonError("names no site, expected AdonSite in its STARTD_ATTRS"))
        live, queue = self._live()
        for action in to_do(live, Known(self._courses, queue, now)):
            self._carry_out(action)
        wanted = [
            (mark, request)
            for mark, request in asks.requests(
                self._courses, self._outputs, self._config, now, self._since
            )
            if mark not in self._asked
        ]
        for first in range(0, len(wanted), _MOST_AT_ONCE):
            self._ask(wanted[first : first + _MOST_AT_ONCE], now)
        for report in asks.reports(self._courses, self._config, now):
            if (mark := f"report {report.id}") not in self._asked:
                self._report(report)
                self._asked[mark] = now
        self._asked = {m: at for m, at in self._asked.items() if abs(now - at) <= _KEPT_MARKS_S}

    def _live(self) -> tuple[list[Transit], Mapping[str, Queued] | None]:
        """What the broker holds for runs of this access point, and what became of their jobs."""
        states = (TransitState.QUEUED, *sorted(LIVE))
        found = {t.id: t for state in states for t in self._broker.list(state=state)}
        if not any(parsed(name) for name in found):
            return [], {}
        try:
            mine = of_schedd(found.values(), self._schedd.name())
            runs = [whose[0] for t in mine if (whose := parsed(t.id))]
            queue = self._schedd.jobs({run.job for run in runs}) if runs else {}
            self._said.pop("schedd", None)
        except AdonError as error:
            self._complain("schedd", error)
            known = {course.run for course in self._courses}
            whose_runs = ((t, parsed(t.id)) for t in found.values())
            return [t for t, whose in whose_runs if whose and whose[0] in known], None
        return mine, queue

    def _carry_out(self, action: Release | Renew) -> None:
        try:
            if isinstance(action, Release):
                self._broker.release(action.id, action.bytes_moved, action.seconds, action.outcome)
                log.info("%s: given back: %s", action.id, action.outcome)
                if action.bytes_moved:
                    self._asked[f"report {action.id}"] = self._now()
            else:
                self._broker.renew(action.id, action.lease_s)
        except BrokerError as error:
            if error.code in _AWAY:
                raise
            self._complain(action.id, error)  # one that is refused stands in nobody's way

    def _report(self, report: Release) -> None:
        try:
            self._broker.release(report.id, report.bytes_moved, report.seconds, report.outcome)
        except BrokerError as error:
            if error.code in _AWAY:
                raise
            if error.code != "unknown_transit":  # nothing was asked for that would have been seen
                self._complain(report.id, error)

    def _ask(self, wanted: Sequence[tuple[str, TransitRequest]], now: float) -> None:
        answers = self._broker.ask([request for _, request in wanted])
        for (mark, request), answer in zip(wanted, answers, strict=True):
            self._asked[mark] = now
            if answer.transit is not None:
                got = answer.transit
                log.info("%s: %s%s", got.id, got.state, f": {got.reason}" if got.reason else "")
            else:
                log.warning("%s: best effort: %s", request.id, answer.error)

    def _complain(self, what: str, error: AdonError) -> None:
        """Say it once, not at every look."""
        if self._said.get(what) != str(error):
            self._said[what] = str(error)
            log.warning("%s: %s", what, error)
