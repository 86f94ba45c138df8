"""From one store to another: everything, as it is."""

from __future__ import annotations

from itertools import islice

from network_provisioner.base.errors import InputError
from network_provisioner.stores.store import PAGE, Store


def copy_state(source: Store, target: Store) -> tuple[int, int]:
    """Copy all transits, in their order, and all versions of all documents.

    Returns how many of each. What was copied before an error stays in the target. Raises
    StoreError, and InputError where the target holds something: state is never mixed.
    """
    with target.turn():
        if next(target.each(), None) is not None or target.kinds():
            raise InputError("found state in the place to copy to, expected an empty one")
        transits = documents = 0
        everything = source.each()
        while page := list(islice(everything, PAGE)):
            target.put_many(page)
            transits += len(page)
        for kind, names in source.kinds().items():
            for name in names:
                versions = source.history(kind, name)
                target.restore(versions)
                documents += len(versions)
    return transits, documents
