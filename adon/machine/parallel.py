"""Work on all cores: a function of many values, each in a process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import TypeVar

from adon.machine.syscalls import tie_to
from network_provisioner.base.errors import AdonError

T = TypeVar("T")
R = TypeVar("R")


def each(
    values: Sequence[T],
    work: Callable[[T], R],
    processes: int,
    done: Callable[[int], None] = lambda _count: None,
) -> list[R]:
    """``work`` of every value, in their order; values that come first are begun first.

    ``work`` and values must be picklable. ``done`` is called with the number of results whenever
    there is one more. With one process the work is done here. However this function ends, no
    process is left.

    Raises what ``work`` raises, and AdonError if a process was killed.
    """
    if processes <= 1 or len(values) <= 1:
        out = []
        for value in values:
            out.append(work(value))
            done(len(out))
        return out
    others = set(active_children())
    # Spawned: nothing of this process, such as its threads, is copied.
    context, count = get_context("spawn"), min(processes, len(values))
    pool = ProcessPoolExecutor(count, context, _begin, (os.getpid(),))
    try:
        futures = [pool.submit(work, value) for value in values]
        for number, future in enumerate(as_completed(futures), 1):
            future.result()
            done(number)
        return [future.result() for future in futures]
    except BrokenProcessPool as error:
        raise AdonError(
            "found a worker process that was ended, expected it to go on (out of memory? --jobs 1 "
            "needs less)"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.kill()
            process.join()


def _begin(parent: int) -> None:
    """A worker ends with its parent, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not tie_to(parent):
        os._exit(0)
