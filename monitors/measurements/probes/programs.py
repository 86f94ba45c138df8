"""Running other programs for a probe: bounded in time and output, and none outlives the agent.

Any program can be a metric. The agent's own configuration lists which: a broker names them, and
never sends one.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitors.measurements.probes.probe import Halt, ProbeError, ProbeRequest, Reading
from network_provisioner.base.errors import printable

_GUARD = Path(__file__).with_name("guard.py")
_MOST_BYTES = 8 * 2**20
_LAST_WORDS = 200  # characters of what a program said, in an error
_AFTER_S = 5.0  # for the guard to end what it killed
_PLACES = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

_MOST_OUTPUT_BYTES = 64 * 1024
_MOST_DETAILS = 4096  # bytes of them, as JSON


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended. ``in_time`` is False where it was killed because its time was up."""

    code: int
    out: bytes
    err: bytes
    in_time: bool = True

    @property
    def last_output(self) -> str:
        """The last line it said, for an error."""
        lines = (self.err.strip() or self.out.strip()).decode(errors="replace").splitlines()
        return printable(lines[-1].strip())[:_LAST_WORDS] if lines else "it said nothing"

    def how(self, program: str) -> str:
        """Why there is no result, in words."""
        if not self.in_time:
            return f"{program} did not end in time"
        if self.code > 128:
            return f"{program} was ended by signal {self.code - 128}"
        return f"{program} ended with exit code {self.code}: {self.last_output}"


def find(program: str) -> str | None:
    """Where a program is, also where PATH is short, as that of services often is."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PLACES}")


def run(
    argv: Sequence[str],
    until: float,
    halt: Halt,
    env: Mapping[str, str] | None = None,
    most_bytes: int = _MOST_BYTES,
) -> ProgramResult:
    """Run a program until it ends, at most until ``until`` (monotonic seconds).

    Raises ProbeError where it cannot be started, says more than ``most_bytes``, or the agent stops.
    """
    try:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            start_new_session=True,
        )
    except OSError as error:
        raise ProbeError(f"cannot run {argv[0]}: {error.strerror or error}") from None
    with guard:
        try:
            return _listen(guard, Path(argv[0]).name, until, halt, most_bytes)
        finally:
            assert guard.stdin is not None
            guard.stdin.close()  # the life line
            try:
                guard.wait(_AFTER_S)
            except subprocess.TimeoutExpired:
                guard.kill()


def _listen(
    guard: subprocess.Popen[bytes], name: str, until: float, halt: Halt, most_bytes: int
) -> ProgramResult:
    assert guard.stdout is not None
    assert guard.stderr is not None
    out, err = bytearray(), bytearray()
    output = {guard.stdout.fileno(): out, guard.stderr.fileno(): err}
    open_files = dict.fromkeys(output, select.POLLIN)
    while open_files:
        ready = halt.ready(open_files, until)
        halt.check()
        if not ready and time.monotonic() >= until:
            return ProgramResult(-1, bytes(out), bytes(err), in_time=False)
        for number, _ in ready:
            more = os.read(number, 65536)
            if not more:
                del open_files[number]
            output[number] += more
        if len(out) + len(err) > most_bytes:
            raise ProbeError(f"{name} said more than {most_bytes} bytes")
    try:
        code = guard.wait(max(0.0, until - time.monotonic()) + _AFTER_S)
    except subprocess.TimeoutExpired:  # it closed its output and goes on
        return ProgramResult(-1, bytes(out), bytes(err), in_time=False)
    return ProgramResult(code if code >= 0 else 128 - code, bytes(out), bytes(err))


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments; what it reports is in ``unit``, where it says no other."""

    name: str
    argv: tuple[str, ...]
    unit: str = "1"
    timeout_s: float = 10.0


def read_output(output: bytes, command: Command) -> Reading:
    """What a program said: a number, or ``{"value": …, "unit": …, "details": {…}}``.

    Raises ProbeError.
    """
    text = output.decode(errors="replace").strip()
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    value, unit, details = data, command.unit, {}
    if isinstance(data, dict):
        value, unit = data.get("value"), data.get("unit", unit)
        details = data.get("details", {})
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise ProbeError(
            f"{command.name} said {printable(text)[:80]!r}, expected a number or JSON with 'value'"
        )
    if not isinstance(unit, str) or not isinstance(details, dict) or len(unit) > 40:
        raise ProbeError(f"{command.name}: expected a short text as 'unit', an object as 'details'")
    if len(json.dumps(details)) > _MOST_DETAILS:
        raise ProbeError(f"{command.name}: found details above {_MOST_DETAILS} bytes")
    return Reading(f"custom:{command.name}", float(value), unit, details)


def measure_by_command(
    order: ProbeRequest, commands: Mapping[str, Command], subject: str
) -> list[Reading]:
    """Run the command that the order names. It finds what is measured in ADON_SUBJECT and, where
    there is one, the other end's address in ADON_PEER. Raises ProbeError."""
    command = commands.get(order.options["command"])
    if command is None:
        raise ProbeError(f"there is no command {order.options['command']!r} here")
    own = {name: value for name, value in os.environ.items() if name != "ADON_TOKEN"}
    env = {**own, "ADON_SUBJECT": subject, "ADON_PEER": order.peer}
    until = min(order.end, time.monotonic() + command.timeout_s)
    ended = run(command.argv, until, order.halt, env, _MOST_OUTPUT_BYTES)
    if not ended.in_time or ended.code != 0:
        raise ProbeError(ended.how(command.name))
    return [read_output(ended.out, command)]


def _finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
