"""Who leads of the brokers on one database, and what a broker does when it is elected."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import Transit
from network_provisioner.stores.store import Leader, Store
from network_provisioner.topology.graph import Topology
from network_provisioner.topology.renames import Renames

if TYPE_CHECKING:
    from monitors.archive.archive import Archive
    from network_provisioner.api.app import Registries
    from network_provisioner.broker import Broker

log = logging.getLogger(__name__)

SWITCHES_CONNECT_S = 10.0  # Open vSwitch tries every 8 s; who comes later is served then
TAKE_OVER_S = 1.0  # who follows has them connected already
ALONE_S = 0.5  # a start that takes longer continues while others may ask
ELECT_EVERY_S = 0.5
_RENAMED = ("network", "renamed")


class Leading:
    """Has a broker lead where no other does, and follow where one does. Where nobody can share its
    store it leads at once."""

    def __init__(
        self,
        broker: Broker,
        registries: Registries,
        address: str,
        beside: Callable[[], object],
        first: Callable[[], object] = lambda: None,
    ) -> None:
        """``address`` is for other brokers; ``first`` is called before the broker leads, ``beside``
        starts what runs beside it."""
        self._broker = broker
        self._registries = registries
        self._store = registries.store
        self._address = address
        self._beside, self._first = beside, first
        self._stop = threading.Event()
        self._end: Callable[[], object] = lambda: None
        self._error: BaseException | None = None
        self._elections: threading.Thread | None = None
        self._start: threading.Thread | None = None
        self._term = 0
        self._patience_s = SWITCHES_CONNECT_S
        self.replaced = False  # whether another broker leads after this one did
        self._problem = self._complaint = ""
        broker.other_problems.append(lambda: self._problem)

    def start(self) -> None:
        """Find out who leads, and continue doing so. Raises StoreError, ControllerError."""
        self._take(self._store.elect(self._address))
        if self._store.shared:
            self._elections = threading.Thread(target=self._elect, name="adon-elect", daemon=True)
            self._elections.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Until a start that is under way has ended, or for so long. Raises what it raised."""
        if self._start is not None:
            self._start.join(timeout_s)
        if self._error is not None:
            raise self._error

    def on_end(self, end: Callable[[], object]) -> None:
        """Have this called where the broker has to end: its start fails, or it was replaced."""
        self._end = end
        if self._error is not None or self.replaced:
            end()

    def stop(self) -> None:
        """Ask for nothing more, and wait for what is under way."""
        self._stop.set()
        for thread in filter(None, (self._elections, self._start)):
            thread.join()

    def _elect(self) -> None:
        while not self._stop.wait(ELECT_EVERY_S) and not self.replaced:
            try:
                self._take(self._store.elect(self._address))
            except AdonError as error:
                if str(error) != self._complaint:
                    log.warning("no leader is elected: %s", error)
                self._complaint = str(error)
                if self._start is None:  # else the broker says so
                    self._problem = self._complaint
            except Exception:
                log.exception("an election failed")
            else:
                self._problem = self._complaint = ""

    def _take(self, leader: Leader) -> None:
        if self._start is not None:
            if not leader.is_us or leader.term != self._term:
                log.warning("the broker at %s leads in place of this one", leader.address)
                self.replaced = True
                self._end()
        elif leader.is_us:
            if self._broker.follows:
                log.warning("takes over from another broker, in term %d", leader.term)
            self._term = leader.term
            self._start = threading.Thread(
                target=self._lead, args=(leader,), name="adon-start", daemon=True
            )
            self._start.start()
        else:
            if not self._broker.follows:
                self._broker.stand_by()
                self._patience_s = TAKE_OVER_S
            self._broker.follow(leader)

    def _lead(self, leader: Leader) -> None:
        """Start the broker, and what runs beside it even while that waits for switches."""

        def begin() -> None:
            self._first()
            if leader.term:
                self._registries.templates.keep_configured()
            self._broker.start(self._patience_s, leader)

        starting = threading.Thread(target=self._try, args=(begin,), daemon=True)
        starting.start()
        starting.join(ALONE_S)
        self._try(self._beside)
        starting.join()

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # wait() raises it
            self._error = error
            self._end()


def carry_over(topology: Topology, store: Store, archive: Archive) -> None:
    """What a broker does first where nodes and links have new names (``was`` in the topology):
    write transits, documents and measurements under those, once. The next start does what a kill
    interrupts. Raises StoreError, ArchiveError."""
    from monitors.archive.stores.base import rename_subjects

    renames = Renames(topology)
    known = store.document(*_RENAMED)
    if not renames or (known is not None and known.body == renames.names):
        return
    for was, name in renames.names.items():
        log.warning("%s was %s: its records are now those of %s", name, was, name)
    changed = []
    for transit in store.each():
        before = transit.as_dict()
        after = renames.in_body(before)
        if after != before:
            if {after["src"], after["dst"]} != {before["src"], before["dst"]}:
                after["asked"] = ""  # who asks again says the new names
            changed.append(Transit.from_dict(after))
    store.put_many(changed)
    for kind in store.kinds():
        for document in store.documents(kind):
            body = renames.in_body(document.body)
            if body != document.body:
                store.put_document(kind, document.name, body)
    rename_subjects(archive.engine, renames.in_subject)
    store.put_document(*_RENAMED, renames.names, keep=1)
