"""The store as the broker writes it: what cannot be refused any more is kept until it is taken."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit
from network_provisioner.stores.store import Store, StoreError

log = logging.getLogger(__name__)


class Repository:
    """Writes and finds transits. Not thread-safe, but for :meth:`find`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: dict[str, Transit] = {}  # what the store has not taken yet
        self._gathering = False
        self.behind = False
        """Whether there is something that the store did not take."""

    def find(self, transit_id: str) -> Transit | None:
        """The transit as it was last saved; needs no lock. Raises StoreError."""
        unsaved = self._unsaved.get(transit_id)
        return self._store.get(transit_id) if unsaved is None else unsaved.copy()

    def write(self, transits: Sequence[Transit]) -> None:
        """Write all of them or none. Raises BrokerError ``store_unavailable``."""
        try:
            self._put(transits)
        except StoreError as error:
            raise BrokerError(str(error), "store_unavailable") from error

    def write_if_shared(self, transits: Sequence[Transit]) -> None:
        """Write what is answered in a moment and changes nothing on the switches: where other
        brokers share the store, as :meth:`write`, for one of them may be asked about it next; else
        as :meth:`save`."""
        (self.write if self._store.shared else self.save)(transits)

    def save(self, transits: Sequence[Transit]) -> None:
        """Write what has happened, all in one; where the store does not take it, later."""
        if not transits:
            return
        if self._gathering:
            self.save_later(transits)
            return
        try:
            self._put(transits)
        except StoreError as error:
            if not self.behind:  # once, and not with every try
                log.warning("transit %s cannot be saved: %s", _names(transits), error)
            self.save_later(transits)
            self.behind = True

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is saved within the block is written at its end, all in one."""
        self._gathering = True
        try:
            yield
        finally:
            self._gathering = False
            self.retry()

    def save_later(self, transits: Sequence[Transit]) -> None:
        """Write what has happened together with what is written next."""
        self._unsaved.update((transit.id, transit) for transit in transits)

    def _put(self, transits: Sequence[Transit]) -> None:
        """All of them or none. What was not written before goes with them: they may have been given
        what others gave back, and the store must not have the one without the other."""
        new = {transit.id for transit in transits}
        late = [transit for name, transit in self._unsaved.items() if name not in new]
        self._store.put_many([*late, *transits])
        self._unsaved.clear()
        self.behind = False

    def retry(self) -> None:
        """Try again what the store did not take."""
        self.save(list(self._unsaved.values()))

    def keeps(self, transit_id: str) -> bool:
        """Whether the store has what is known of a transit; what it did not take is tried again."""
        if transit_id in self._unsaved:
            self.retry()
        return transit_id not in self._unsaved

    def is_unsaved(self, transit_id: str) -> bool:
        """Whether the store has not taken the last change of a transit."""
        return transit_id in self._unsaved

    def forget(self, transit_id: str) -> None:
        """What is known of a transit counts no more."""
        self._unsaved.pop(transit_id, None)
        self.behind = self.behind and bool(self._unsaved)


def _names(transits: Sequence[Transit]) -> str:
    return ", ".join(transit.id for transit in transits)
