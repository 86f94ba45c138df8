"""The size of the demo's pool over time, recorded while its workflow runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from adon.service.poolsize import PoolSize
from condor_plugins.pool.sitepool import SitePool
from examples.demo.steps import asked_pool
from examples.testbed.pool import Pool
from monitors.archive.archive import Archive

_ANSWER_S = 10.0


class _Asked:
    """The pool as one of its clients sees it: a broker need not be among them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def ask(self) -> Mapping[str, SitePool]:
        """Every site now. Raises AdonError."""
        return asked_pool(self._pool, _ANSWER_S)

    def close(self) -> None:
        """Nothing stays between two questions."""


@contextmanager
def recorded(pool: Pool, archive: Archive) -> Iterator[None]:
    """Meanwhile the archive learns how large the pool is, and how large it would have to be."""
    size = PoolSize(_Asked(pool), archive, time.time)
    size.start()
    try:
        yield
    finally:
        size.stop()
