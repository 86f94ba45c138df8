"""Answers to whoever acts for certain users: of others' transits they tell that there are some, but
not their ids, from which one could tell the next that is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

from network_provisioner.access import Principal
from network_provisioner.api.workers import Workers
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import RequestAnswer, Transit
from network_provisioner.broker import Broker
from network_provisioner.queries import unknown_transit
from network_provisioner.stores.store import StoreError

_OTHERS = "another's"
# A word, and what stands at its ends in a sentence; an id may have any of these, too.
_WORD, _EDGE = re.compile(r"\S+"), "(),;:.'\""
_MOST_EDGE = 4


@lru_cache(4096)
def _readings(word: str) -> list[tuple[str, str, str]]:
    """The ids that a word may be, the longest first, each with what stands before and behind it."""
    first = min(len(word) - len(word.lstrip(_EDGE)), _MOST_EDGE)
    last = max(len(word.rstrip(_EDGE)), len(word) - _MOST_EDGE)
    ends = product(range(first + 1), range(len(word), last - 1, -1))
    return [(word[:a], word[a:b], word[b:]) for a, b in ends]


def _texts(transit: Transit) -> list[str]:
    why = transit.relay.why if transit.relay else ""
    return [transit.reason, why, *(path.get("rejected", "") for path in transit.grant.candidates)]


class Redaction:
    """What may be told of a broker's transits. Whoever acts for all users is told everything.

    Every method asks the store whose the ids are.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def transits(self, caller: Principal, transits: Sequence[Transit]) -> list[Transit]:
        """Some of the caller's own, without others' ids in their words. Raises StoreError."""
        if caller.users is None:
            return list(transits)
        holders = [name for t in transits for way in t.grant.blocking for name in way["holders"]]
        hidden = self._hidden(caller, (text for t in transits for text in _texts(t)), holders)
        return [_without(hidden, t) for t in transits]

    def answers(self, caller: Principal, answers: Iterable[RequestAnswer]) -> list[RequestAnswer]:
        """The same of answers."""
        return [self._answer(caller, answer) for answer in answers]

    def _answer(self, caller: Principal, answer: RequestAnswer) -> RequestAnswer:
        if answer.transit is not None:
            (transit,) = self.transits(caller, [answer.transit])
            answer = replace(answer, transit=transit)
        if answer.error is not None:
            words = self.text(caller, str(answer.error))
            answer = replace(answer, error=BrokerError(words, answer.error.code))
        return answer

    def text(self, caller: Principal, words: str) -> str:
        """A text; that of the store's error where it cannot be asked."""
        if caller.users is None:
            return words
        try:
            return _masked(self._hidden(caller, [words]), words)
        except StoreError as error:
            return str(error)

    def _hidden(
        self, caller: Principal, texts: Iterable[str], holders: Iterable[str] = ()
    ) -> Mapping[str, bool]:
        """Of the ids in texts, and of ``holders``, whether they are to be hidden."""
        words = {word for text in set(texts) for word in _WORD.findall(text)}
        read = {name for word in words for _, name, _ in _readings(word)}
        ids = {name for name in read.union(holders) if name.isascii() and name.isprintable()}
        users = self._broker.users_of(ids)
        return {name: user != "" and not caller.owns(user) for name, user in users.items()}


def _without(hidden: Mapping[str, bool], transit: Transit) -> Transit:
    shown = transit.copy()
    shown.reason = _masked(hidden, transit.reason)
    if shown.relay:
        shown.relay = replace(shown.relay, why=_masked(hidden, shown.relay.why))
    shown.grant.candidates = [
        {**candidate, "rejected": _masked(hidden, candidate.get("rejected", ""))}
        for candidate in transit.grant.candidates
    ]
    shown.grant.blocking = [
        {**link, "holders": [name for name in link["holders"] if not hidden.get(name)]}
        for link in transit.grant.blocking
    ]
    return shown


def _masked(hidden: Mapping[str, bool], text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        readings = _readings(match[0])
        before, name, behind = next((r for r in readings if r[1] in hidden), readings[-1])
        return f"{before}{_OTHERS}{behind}" if hidden.get(name) else match[0]

    return _WORD.sub(replacement, text)


async def own_transit(
    broker: Broker, workers: Workers, caller: Principal, transit_id: str
) -> Transit:
    """The transit, where it is the caller's business. Raises BrokerError ``unknown_transit``, in
    the same words whether there is none or it is somebody else's."""
    if not (transit_id.isascii() and transit_id.isprintable()):  # no id is, so do not look
        raise unknown_transit(transit_id)
    transit = await workers.read(broker.get, transit_id)
    if not caller.owns(transit.request.user):
        raise unknown_transit(transit_id)
    return transit
