"""The watcher's duties: give back, tell, ask again, sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from monitors.planned import submitdir
from network_provisioner.base.path_requests import UNASKED, ids_of, lease_of
from network_provisioner.errors import BrokerError
from network_provisioner.model import ENDED, LIVE, Transit, TransitRequest, TransitState
from pegasus_hooks.watch.duties import Later, Line, worded
from pegasus_hooks.watch.events import Watched
from pegasus_hooks.watch.papers import Pair, Papers
from pegasus_hooks.watch.world import Broker

# A request of a hook that was killed may reach the broker after our first try to give it back.
_STRAGGLER_S = 2.0
_HELD_STATES = tuple(sorted({*LIVE, TransitState.QUEUED}))


@dataclass(frozen=True, slots=True)
class Moved:
    """What a transfer moved in bytes and seconds, and what it used of what ``release`` takes."""

    n_bytes: int = 0
    seconds: float = 0.0
    used: dict[str, int] = field(default_factory=dict)


Measure = Callable[[Papers, Pair], Moved]
RequestsOf = Callable[[Papers], list[TransitRequest]]


@dataclass(slots=True)
class GiveBack:
    """Release what one pair of a decision got. ``why`` is recorded where the broker never heard of
    it: the transfer then goes, or would have gone, as best effort."""

    watched: Watched
    papers: Papers
    pair: Pair
    outcome: str
    measure: Measure
    now: Callable[[], float]
    why: str = ""
    _unknown: bool = False

    @property
    def key(self) -> str:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        return f"give back {self.pair.id} of {self.papers.at}"

    def do(self, broker: Broker, /) -> list[Line]:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        current = Papers.read(self.papers.file)
        same = current.same_run(self.papers)
        if current.given_back if same else self.pair.id in current.ids:
            return []  # POST was there in the meantime, or a later PRE has it
        unsure = same and self.pair.state in ("", UNASKED)
        lines: list[Line] = []
        known = False
        # A hook that was killed did not write down under which number it got its path.
        for name in ids_of(self.pair.id) if unsure else (self.pair.id,):
            if name != self.pair.id and name in current.ids:
                continue
            transit = _known(broker, name)
            if transit is None:
                break
            known = True
            if transit.state not in ENDED:
                lines.append(self._release(broker, name))
        if known or not unsure:
            return lines
        if not self._unknown:
            self._unknown = True
            raise Later(_STRAGGLER_S)
        return self._tell(broker)

    def _release(self, broker: Broker, name: str) -> Line:
        moved = self.measure(self.papers, self.pair)
        transit = broker.release(name, moved.n_bytes, moved.seconds, self.outcome, **moved.used)
        return self._line("given_back", name, outcome=self.outcome, state=str(transit.state))

    def _tell(self, broker: Broker) -> list[Line]:
        if not self.why or self.pair.told:
            return []
        broker.ask([without_path(self.watched, self.papers, self.pair, self.why)])
        return [self._line("told", self.pair.id, reason=self.why)]

    def _line(self, event: str, name: str, **values: Any) -> Line:
        head = {"job": self.papers.job, "retry": self.papers.retry, "id": name}
        return worded(self.watched, event, self.now(), **head, **values)


@dataclass(slots=True)
class Tell:
    """Let the broker know of a transfer that runs without a path, and why: its hook could not."""

    watched: Watched
    papers: Papers
    pair: Pair
    now: Callable[[], float]

    @property
    def key(self) -> str:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        return f"tell of {self.pair.id}"

    def do(self, broker: Broker, /) -> list[Line]:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        if _known(broker, self.pair.id) is not None:
            # It was asked for after all, only the answer was lost: its state says what it became.
            return []
        asked = without_path(self.watched, self.papers, self.pair, self.pair.reason)
        refused = [a.error for a in broker.ask([asked]) if a.error is not None]
        words = {"job": self.papers.job, "retry": self.papers.retry, "id": self.pair.id}
        event = "untold" if refused else "told"
        why = str(refused[0]) if refused else self.pair.reason
        return [worded(self.watched, event, self.now(), **words, reason=why)]


@dataclass(slots=True)
class AskAgain:
    """Ask for the paths of a job that runs again after it was held or evicted.

    ``wanted`` says whether it still does; ``got`` takes the decision with its new ids.
    """

    watched: Watched
    papers: Papers
    requests_of: RequestsOf
    wanted: Callable[[], bool]
    got: Callable[[Papers], None]
    now: Callable[[], float]

    @property
    def key(self) -> str:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        return f"ask again for {self.papers.file} {self.papers.ids}"

    def do(self, broker: Broker, /) -> list[Line]:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        if not self.wanted():
            return []
        requests = self.requests_of(self.papers)
        asked = broker.ask(requests)
        pairs, lines = [], []
        for request, answer in zip(requests, asked, strict=True):
            transit = answer.transit
            state = str(transit.state) if transit is not None else UNASKED
            reason = transit.reason if transit is not None else str(answer.error)
            name = transit.id if transit is not None else request.id
            pairs.append(Pair(name, request.src, request.dst, state, reason, request.size_bytes))
            words = {"job": self.papers.job, "retry": self.papers.retry, "id": name}
            lines.append(
                worded(self.watched, "asked_again", self.now(), **words, state=state, reason=reason)
            )
        papers = replace(self.papers, pairs=tuple(pairs))
        self.got(papers)
        for answer in asked:
            if answer.transit is not None and (lease_s := lease_of(answer.transit)):
                with suppress(BrokerError):  # it has one, if not a long one
                    broker.renew(answer.transit.id, lease_s)
        _write_down(papers, [answer.transit for answer in asked])
        return lines


@dataclass(slots=True)
class Sweep:
    """Release whatever a workflow still holds when it has ended; ``wanted`` says whether it still
    has."""

    watched: Watched
    outcome: str
    wanted: Callable[[], bool]
    now: Callable[[], float]

    @property
    def key(self) -> str:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        return f"sweep {self.watched.workflow}"

    def do(self, broker: Broker, /) -> list[Line]:
        """See :class:`~pegasus_hooks.watch.duties.Duty`."""
        lines: list[Line] = []
        for state in _HELD_STATES:
            for transit in broker.list(state=str(state), workflow=self.watched.workflow):
                if not self.wanted():
                    return lines
                broker.release(transit.id, outcome=self.outcome)
                words = {"job": transit.job, "id": transit.id, "outcome": self.outcome}
                lines.append(worded(self.watched, "given_back", self.now(), **words))
        return lines


def _known(broker: Broker, transit_id: str) -> Transit | None:
    try:
        return broker.get(transit_id)
    except BrokerError as error:
        if error.code == "unknown_transit":
            return None
        raise


def without_path(watched: Watched, papers: Papers, pair: Pair, why: str) -> TransitRequest:
    """The request that only records why there is no path."""
    return TransitRequest(
        id=pair.id,
        src=pair.src,
        dst=pair.dst,
        size_bytes=pair.size_bytes,
        template=watched.config.template,
        workflow=watched.workflow,
        job=papers.job,
        retry=papers.retry,
        best_effort=why,
    )


def _write_down(papers: Papers, transits: Sequence[Transit | None]) -> None:
    """Put the new ids where POST finds them; a PRE that wrote in the meantime is not disturbed."""
    data = submitdir.read_json(papers.file)
    if not papers.same_run(Papers.of(papers.file, data)):
        return
    old = {(p.get("src"), p.get("dst")): p for p in data["pairs"] if isinstance(p, dict)}
    data["pairs"] = [
        {
            **old.get((pair.src, pair.dst), {"src": pair.src, "dst": pair.dst}),
            "id": pair.id,
            "state": pair.state,
            "reason": pair.reason,
            "granted_bps": transit.granted_bps if transit else 0.0,
            "layer": transit.layer if transit else "",
            "path": transit.path if transit else [],
        }
        for pair, transit in zip(papers.pairs, transits, strict=True)
    ]
    with suppress(OSError):  # disk full: the watcher itself remembers
        submitdir.write_json(papers.file, data)
