"""Which bytes of a shared rule belong to which circuit. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from network_provisioner.controllers.groups import Pair


class ByteLedger:
    """Attributes the byte counter of each pair of sites to the circuits that share it.

    The counter of a pair counts the packets of all its circuits. Whenever it is read, what it has
    grown since the last reading is split among the circuits that had the rule in between, by the
    given shares (their guaranteed rates). With one circuit at a time, which is usual, the count is
    exact; with several it is an estimate that adds up.
    """

    def __init__(self) -> None:
        self._last: dict[Pair, int] = {}
        self._bytes: dict[str, float] = {}

    def observe(self, pair: Pair, counter: int, shares: Mapping[str, float]) -> None:
        """Take in a reading. A counter below the last one has started anew (switch restart)."""
        last = self._last.get(pair, 0)
        grown = counter - last if counter >= last else counter
        self._last[pair] = counter
        for circuit_id, share in shares.items():
            self._bytes[circuit_id] = self._bytes.get(circuit_id, 0.0) + grown * share

    def bytes_of(self, circuit_id: str) -> int:
        """Bytes attributed to a circuit so far; 0 for one that is not known."""
        return round(self._bytes.get(circuit_id, 0.0))

    def retain(self, pairs: Iterable[Pair], circuit_ids: Iterable[str]) -> None:
        """Forget every pair and circuit that is not named; a new rule's counter starts at 0."""
        pairs, circuit_ids = set(pairs), set(circuit_ids)
        self._last = {p: n for p, n in self._last.items() if p in pairs}
        self._bytes = {i: n for i, n in self._bytes.items() if i in circuit_ids}
