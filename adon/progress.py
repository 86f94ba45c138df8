"""How far a long command is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from adon.commands.output import duration

_WIDTH = 30
_LINES = 10  # where there is no terminal: about as many lines in all
_SOONEST_S = 0.1  # between two drawings of the bar


class Progress:
    """Shows how many of ``total`` ``things`` are done; a context manager, so that whatever is
    printed next starts on a line of its own."""

    def __init__(
        self,
        total: int,
        things: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._things = total, things
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._terminal = self._stream.isatty()
        self._began = clock()
        self._drawn_at = float("-inf")
        self._drawn = 0
        self._told = 0

    def __enter__(self) -> Progress:
        self._show(0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._terminal and self._drawn:
            self._stream.write("\n")
            self._stream.flush()

    def __call__(self, done: int) -> None:
        """So many are done."""
        self._show(done)

    def _show(self, done: int) -> None:
        if self._terminal:
            self._draw(done)
        elif self._total and done * _LINES // self._total > self._told:
            self._told = done * _LINES // self._total
            print(self._words(done), file=self._stream, flush=True)

    def _draw(self, done: int) -> None:
        now = self._clock()
        if now - self._drawn_at < _SOONEST_S and done < self._total:
            return
        self._drawn_at = now
        full = _WIDTH * done // max(1, self._total)
        line = f"[{'#' * full}{'.' * (_WIDTH - full)}] {self._words(done)}"
        self._stream.write("\r" + line.ljust(self._drawn))
        self._stream.flush()
        self._drawn = len(line)

    def _words(self, done: int) -> str:
        words = f"{done} of {self._total} {self._things}"
        spent = self._clock() - self._began
        if 0 < done < self._total:
            return f"{words}, about {duration(spent / done * (self._total - done))} left"
        return f"{words}, {duration(spent)}" if done else words
