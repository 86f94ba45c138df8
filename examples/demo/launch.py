"""The demo outside the box: what is needed, one run at a time, and where it runs.

The line itself is :mod:`examples.demo.line`. Here programs are fetched, a second run waits its turn
with a clear word, and the line is put into a box where the kernel allows that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from adon.machine import box, packages, syscalls
from examples import scenario
from examples.demo import line, steps
from examples.demo.options import DemoOptions
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.base.units import format_size

ROOM_BYTES = 200_000_000  # a run of the default size takes 30 to 70 MB


@contextlib.contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the lock of a state directory. The kernel frees it however this process ends.

    Raises InputError if another run holds it.
    """
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise InputError(
                f"{state}: another demo is running (process {lock.read().strip() or 'unknown'}), "
                "expected to be alone; wait for it or give another --state"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def check_room(state: Path, report: Path) -> None:
    """Say before the run what would fail at its end. Raises InputError."""
    free = shutil.disk_usage(state).free
    if free < ROOM_BYTES:
        raise InputError(
            f"{state}: found {format_size(free)} of free disk, expected at least "
            f"{format_size(ROOM_BYTES)} for a run"
        )
    above = next(p for p in (report.absolute(), *report.absolute().parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{report}: {above} is no directory that can be written, expected one")


def run(
    example: str, settings: Mapping[str, int], state: Path, report: Path, *, simulate: bool
) -> int:
    """Run the demo and return its exit code; arguments as in DemoOptions. Raises AdonError."""
    # When make is killed nobody is left to see the end, and a second run must find the field free.
    if not syscalls.tie_to(os.getppid()):
        raise AdonError("the process that started the demo has ended")
    started = time.monotonic()
    say = steps.clock(started)
    with alone(state):
        check_room(state, report)
        note = "asked for with --simulate" if simulate else box.can_box()
        if note:
            say(f"simulated network: {note}")
        needed = ["condor", "gridftp", scenario.load(example).tools]
        if note is None:
            needed.append("openvswitch")
        options = DemoOptions(
            example=example,
            settings=settings,
            state=state.resolve(),
            report=report.resolve(),
            programs={name: packages.ensure(name, progress=say) for name in needed},
            network_note=f"The network is simulated: {note}." if note else "",
            started=started,
        )
        if note is None:
            # Not "-m": the caller's working directory may be anywhere.
            start = (
                f"import sys; sys.path.insert(0, {str(steps.ROOT)!r}); "
                "from examples.demo import line; sys.exit(line.main())"
            )
            return box.run([sys.executable, "-c", start, options.to_json()], tied=True)
        return line.main([options.to_json()])
