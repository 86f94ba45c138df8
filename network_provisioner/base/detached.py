"""Work that outlives the process that asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable


def detached(work: Callable[[], object]) -> None:
    """Has ``work`` done by a process that belongs to nobody: no child of this one, in a session of
    its own, with nothing as its standard input, output and error. It ends with ``work``, whatever
    that raises, and nobody is told.

    Returns when that process is there. Raises OSError where there are too many. The process has the
    open files of this one, and of its threads none but the caller's: ``work`` should ask little.
    """
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    # From here on nothing may return: this is a second process in the middle of the caller's code.
    try:
        os.setsid()
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            work()
    finally:
        os._exit(0)
