"""Work of requests in threads: what changes anything one after the other, in order of arrival.

The broker does one thing at a time. Sixty threads that wait for its lock get it in any order, and
slow each other down; a queue before it is fair, and a request that waited too long can be taken out
again as if it had never been made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from network_provisioner.base.errors import BrokerError

P = ParamSpec("P")
T = TypeVar("T")
WAIT_S = 30.0  # in the queue; nobody waits longer for an answer
_READERS = 8


class Workers:
    """Two pools of threads: one thread that changes, some that only ask."""

    def __init__(self) -> None:
        self._change = ThreadPoolExecutor(1, "adon-change")
        self._read = ThreadPoolExecutor(_READERS, "adon-read")

    async def change(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run ``work`` after what came before it. Raises what it raises, and BrokerError ``busy``
        after :data:`WAIT_S` in the queue; then it never runs."""
        return await _result(self._change, lambda: work(*args, **named))

    async def read(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run ``work``, which changes nothing, beside others. Raises as :meth:`change`."""
        return await _result(self._read, lambda: work(*args, **named))

    def close(self) -> None:
        """End the threads, once what runs has come to its end."""
        for pool in (self._read, self._change):
            pool.shutdown(cancel_futures=True)


async def _result(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    future = pool.submit(work)
    done = asyncio.wrap_future(future)
    await asyncio.wait({done}, timeout=WAIT_S)
    if not done.done() and future.cancel():  # it has not begun
        raise BrokerError(
            f"the broker was busy for {WAIT_S:g} s; nothing was done, try again", "busy"
        )
    return await done
