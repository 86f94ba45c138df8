"""Screens that are drawn again and again: ``--watch`` and ``adon top``."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from adon.cli.options import above_0
from adon.cli.parsing import Run, option
from adon.cli.terminal import screen_size
from network_provisioner.base.errors import AdonError, printable
from network_provisioner.base.units import parse_duration

_EVERY = "2 s"


class _Captured(io.StringIO):
    """Takes what is printed for the terminal."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def watch(parser: Any) -> None:
    """``--watch [TIME]`` of a command that prints a list or a status."""
    run: Run = parser.get_default("run")
    meaning = "repeat every TIME, until Ctrl-C (without TIME: 2 s)"
    option("--watch", meaning, "TIME", nargs="?", const=_EVERY)(parser)
    parser.set_defaults(run=lambda args: _watched(args, run) if args.watch else run(args))


def _watched(args: argparse.Namespace, run: Run) -> int:
    os.environ["PAGER"] = ""

    def draw() -> str:
        shown = _Captured()
        notes = shown if shown.isatty() else sys.stderr  # a program reads them apart
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(notes):
            run(args)
        return shown.getvalue().rstrip("\n")

    return draw_again(draw, args.watch, "--watch")


def draw_again(draw: Callable[[], str], every: str, option: str) -> int:
    """Show what ``draw`` makes again and again, on a screen of its own where there is one; exit
    code 0 at Ctrl-C. What fails after the first time is shown too, and tried again. Raises
    InputError for an invalid period, AdonError if the first time fails."""
    every_s = above_0(parse_duration, every, option)
    assert every_s is not None
    text = draw()
    with contextlib.suppress(KeyboardInterrupt):
        if not sys.stdout.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
            while True:
                print(text, flush=True)
                sleep(every_s)
                text = _drawn(draw)
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with _restored(), Live(screen=True, auto_refresh=False, console=Console()) as screen:
            while True:
                lines = text.splitlines()[: screen_size().lines]
                screen.update(Text.from_ansi("\n".join(lines)), refresh=True)
                sleep(every_s)
                text = _drawn(draw)
    return 0


def sleep(seconds: float) -> None:
    """Wait, on a screen of its own no longer than until that has another size."""
    signal.sigtimedwait({signal.SIGWINCH}, seconds)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """SIGTERM ends as an exception, so that the terminal is left as it was; changes of its size are
    kept for :func:`sleep`."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _drawn(draw: Callable[[], str]) -> str:
    try:
        return draw()
    except AdonError as error:
        return f"adon: {printable(str(error))}"
