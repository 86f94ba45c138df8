"""Which bytes of a shared rule belong to which circuit. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping


class ByteLedger:
    """Attributes the byte counter of each rule to the circuits that share it.

    The counter of a rule counts the packets of all its circuits. Whenever it is read, what it has
    grown since the last reading is split among the circuits that had the rule in between, by the
    given shares (their guaranteed rates). With one circuit at a time, which is usual, the count is
    exact; with several it is an estimate that adds up.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._bytes: dict[str, float] = {}

    def observe(self, rule: Hashable, counter: int, shares: Mapping[str, float]) -> None:
        """Take in a reading. A counter below the last one has started anew (switch restart)."""
        last = self._last.get(rule, 0)
        grown = counter - last if counter >= last else counter
        self._last[rule] = counter
        for circuit_id, share in shares.items():
            self._bytes[circuit_id] = self._bytes.get(circuit_id, 0.0) + grown * share

    def bytes_of(self, circuit_id: str) -> int:
        """Bytes attributed to a circuit so far; 0 for one that is not known."""
        return round(self._bytes.get(circuit_id, 0.0))

    def retain(self, rules: Iterable[Hashable], circuit_ids: Iterable[str]) -> None:
        """Forget every rule and circuit that is not named; a new rule's counter starts at 0."""
        rules, circuit_ids = set(rules), set(circuit_ids)
        self._last = {r: n for r, n in self._last.items() if r in rules}
        self._bytes = {i: n for i, n in self._bytes.items() if i in circuit_ids}
