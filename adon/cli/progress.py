"""How far a long command is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from adon.cli.output import duration

_LINES = 10  # where there is no terminal: about as many in all


@contextmanager
def progress(
    total: int,
    things: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[int], None]]:
    """Shows how many of ``total`` ``things`` are done, each time that the function says it."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield _lines(total, things, stream, clock)
        return
    from rich import progress as rich  # slow to import, and seldom needed
    from rich.console import Console

    columns = (rich.BarColumn(), rich.MofNCompleteColumn(), things, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task(things, total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(
    total: int, things: str, stream: TextIO, clock: Callable[[], float]
) -> Callable[[int], None]:
    began, told = clock(), 0

    def show(done: int) -> None:
        nonlocal told
        if done * _LINES // total > told:
            told = done * _LINES // total
            spent = clock() - began
            left = f"about {duration(spent / done * (total - done))} left"
            words = left if done < total else duration(spent)
            print(f"{done} of {total} {things}, {words}", file=stream, flush=True)

    return show
