"""Answers to whoever acts for certain users: of others' transits they tell that there are some, but
not their ids, from which one could tell the next that is asked for."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from itertools import product

from network_provisioner.access import Principal
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import RequestAnswer, Transit
from network_provisioner.broker import Broker

_OTHERS = "another's"
# A word, and what stands at its ends in a sentence; an id may have any of these, too.
_WORD, _EDGE = re.compile(r"\S+"), "(),;:.'\""
_MOST_EDGE = 4
# Of a workflow, which stands in all its ids.
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@lru_cache(4096)
def _readings(word: str) -> list[tuple[str, str, str]]:
    """The ids that a word may be, the longest first, each with what stands before and behind it."""
    first = min(len(word) - len(word.lstrip(_EDGE)), _MOST_EDGE)
    last = max(len(word.rstrip(_EDGE)), len(word) - _MOST_EDGE)
    ends = product(range(first + 1), range(len(word), last - 1, -1))
    return [(word[:a], word[a:b], word[b:]) for a, b in ends]


class Discretion:
    """What may be told of a broker's transits. Whoever acts for all users is told everything."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def transit(self, caller: Principal, found: Transit) -> Transit:
        """One of the caller's own, without the ids of others' in its words."""
        if caller.users is None:
            return found
        told, own = found.copy(), found.workflow
        told.reason = self.text(caller, found.reason, own)
        told.candidates = [
            {**one, "rejected": self.text(caller, one.get("rejected", ""), own)}
            for one in found.candidates
        ]
        told.blocking = [
            {**one, "holders": [h for h in one["holders"] if not self._hidden(caller, h, own)]}
            for one in found.blocking
        ]
        return told

    def answer(self, caller: Principal, found: RequestAnswer) -> RequestAnswer:
        """The same of an answer."""
        if found.transit is not None:
            found = replace(found, transit=self.transit(caller, found.transit))
        if found.error is not None:
            words = self.text(caller, str(found.error))
            found = replace(found, error=BrokerError(words, found.error.code))
        return found

    def text(self, caller: Principal, words: str, own: str | None = None) -> str:
        """A text; ``own`` is the workflow that it is about, where it is no answer to what the
        caller said itself."""
        if caller.users is None:
            return words

        def told(found: re.Match[str]) -> str:
            known = self._broker.user_of
            readings = _readings(found[0])
            before, name, behind = next((r for r in readings if known(r[1])), readings[-1])
            return f"{before}{_OTHERS}{behind}" if self._hidden(caller, name, own) else found[0]

        return _WORD.sub(told, words)

    def _hidden(self, caller: Principal, transit_id: str, own: str | None) -> bool:
        user = self._broker.user_of(transit_id)
        if user is not None:
            return user != "" and not caller.owns(user)
        # Of one that has ended; its workflow may go on.
        return own is not None and any(found != own for found in _UUID.findall(transit_id))
