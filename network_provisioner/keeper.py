"""The store as the broker writes it: what cannot be refused any more is kept until it is taken."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from network_provisioner.errors import BrokerError
from network_provisioner.model import Transit
from network_provisioner.store import Store, StoreError

log = logging.getLogger(__name__)


class Keeper:
    """Writes transits; ``step`` is told of each write, before and after. Not thread-safe."""

    def __init__(self, store: Store, step: Callable[[str], None]) -> None:
        self._store = store
        self._step = step
        self._unsaved: dict[str, Transit] = {}  # what the store has not taken yet

    def find(self, transit_id: str) -> Transit | None:
        """The transit as it was last saved; needs no lock. Raises StoreError."""
        unsaved = self._unsaved.get(transit_id)
        return self._store.get(transit_id) if unsaved is None else unsaved.copy()

    @property
    def behind(self) -> bool:
        """Whether there is something that the store has not taken."""
        return bool(self._unsaved)

    def must(self, transits: Sequence[Transit]) -> None:
        """Write all of them or none. Raises BrokerError ``store_unavailable``.

        What the store had not taken goes with them: they may have been given what others gave back,
        and the store must not have the one without the other.
        """
        self._step("about to be stored")
        new = {transit.id for transit in transits}
        late = [transit for name, transit in self._unsaved.items() if name not in new]
        try:
            self._store.put_many([*late, *transits])
        except StoreError as error:
            raise BrokerError(str(error), "store_unavailable") from error
        self._unsaved.clear()
        self._step("stored")

    def save(self, transits: Sequence[Transit]) -> None:
        """Write what has happened, all in one; where the store does not take it, later."""
        if not transits:
            return
        self._step("about to be stored")
        try:
            self._store.put_many(transits)
        except StoreError as error:
            log.warning("transit %s cannot be saved: %s", _names(transits), error)
            self._unsaved.update((transit.id, transit) for transit in transits)
        else:
            for transit in transits:
                self._unsaved.pop(transit.id, None)
        self._step("stored")

    def again(self) -> None:
        """Try again what the store did not take."""
        self.save(list(self._unsaved.values()))

    def forget(self, transit_id: str) -> None:
        """Somebody else has saved it since."""
        self._unsaved.pop(transit_id, None)


def _names(transits: Sequence[Transit]) -> str:
    return ", ".join(transit.id for transit in transits)
