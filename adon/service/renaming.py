"""Nodes and links with new names (``was`` in the topology): what a broker keeps under the old ones
continues under the new."""

from __future__ import annotations

import logging

from monitors.archive.archive import Archive
from monitors.archive.stores.base import rename_subjects
from network_provisioner.base.model import Transit
from network_provisioner.stores.store import Store
from network_provisioner.topology.graph import Topology
from network_provisioner.topology.renames import Renames

log = logging.getLogger(__name__)
_DONE = ("network", "renamed")


def carry_over(topology: Topology, store: Store, archive: Archive) -> None:
    """Write transits, documents and measurements under the names of ``topology``, once; what a kill
    interrupts is done by the next start. Raises StoreError, ArchiveError."""
    renames = Renames(topology)
    known = store.document(*_DONE)
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
    store.put_document(*_DONE, renames.names, keep=1)
