"""The first call of a planner: the whole workflow is mapped, and the answers are left for the rest.

The mapping is that of ``adon site map``, run as a program of its own with the planner's own
environment and the files that the planner reads, and ended where it takes too long. Where it fails,
the answers are those of the built-in rule, and the reason is said once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import math
import os
import signal
import stat
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pegasus_hooks import callout
from pegasus_hooks.callout_planner import Asked, catalogs, read_command, read_properties

LIMIT_S = 30.0  # for the mapping; a planner gives up after 60 s or more
PER_JOB_S = 5.0  # what a planner sleeps after each call, unless the answer is there at once
_LOOK_S = 1.0  # how late a planner may be for its look at us
_NEAR_S = 0.1  # how exactly we know when it comes
_PATH = "/usr/local/bin:/usr/bin:/bin"
_ROOT = Path(__file__).resolve().parent.parent
_ADON = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from adon.cli import main; sys.exit(main())"
)
_PDEATHSIG = 1


class _FailedError(Exception):
    """There is no mapping, and this is why."""


def make_table(
    job: callout.Job, planner: callout.Planner, folder: bytes
) -> tuple[bytes, Callable[[], None]]:
    """The answers for a planner's workflow, made and kept for its later calls, and what announces
    them: to be called last before the answer."""
    own = {os.fsdecode(key): os.fsdecode(value) for key, value in os.environb.items()}
    asked, known, jobs = None, {}, 0
    problem = ""
    entries: list[bytes]
    environ = {**_environ(planner.pid), **own}
    environ.setdefault("PATH", _PATH)
    try:
        directory = Path.cwd()
        asked = _asked(planner)
        known = read_properties(asked, directory, own.get("HOME", ""), environ)
        limit = _limit(own.get("ADON_CALLOUT_TIMEOUT"), known.get("pegasus.selector.site.timeout"))
        mapping = _mapped(job, asked, known, directory, environ, limit)
        entries = list(_entries(mapping))
        jobs = len(mapping["placements"])
    except (_FailedError, ValueError, OSError) as error:
        problem = str(error)
        entries = _able(asked, known, environ)
    except Exception as error:  # a fault of ours: said once, and not tried again at every call
        problem = f"{type(error).__name__}: {error}"
        entries = _able(asked, known, environ)
    table = callout.HEAD + b"".join(line + b"\n" for line in entries)
    _keep(table, folder, planner.key)
    if problem:
        from pegasus_hooks.callout_notes import note  # noqa: PLC0415

        note(folder, planner.key, b"*", b"", problem)
    line = message(jobs, problem)
    begun = _begun() if asked is not None else None
    return table, lambda: announce(line, begun)


def message(jobs: int, problem: str) -> str:
    """The one line of a plan: what the callout costs, and why the mapping does not answer."""
    cost = f"this planner sleeps about {PER_JOB_S:g} s for every job it asks about"
    if jobs:
        cost += f" ({jobs} jobs: {_duration(PER_JOB_S * jobs)})"
    cost += "; the plug-in of 'adon install pegasus' is asked once for all"
    if not problem:
        return f"adon: {cost}"
    return f"adon: jobs are placed by the built-in rule: {' '.join(problem.split())}; {cost}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def _asked(planner: callout.Planner) -> Asked:
    return read_command([os.fsdecode(word) for word in planner.command])


def _environ(pid: int) -> dict[str, str]:
    """The planner's own environment: the callout's is not the user's."""
    words = callout.read(b"/proc/%d/environ" % pid).split(b"\0")
    pairs = (os.fsdecode(word).partition("=") for word in words if b"=" in word)
    return {key: value for key, _, value in pairs}


def _limit(wished: str | None, planners: str | None) -> float:
    """Seconds for the mapping: what the user says, and never more than half the planner's own."""
    limit = LIMIT_S
    with contextlib.suppress(TypeError, ValueError):
        limit = max(0.1, float(wished or ""))
    with contextlib.suppress(TypeError, ValueError):
        limit = min(limit, max(1.0, int(planners or "") / 2))
    return limit


def _mapped(
    job: callout.Job,
    asked: Asked,
    known: Mapping[str, str],
    directory: Path,
    environ: Mapping[str, str],
    limit: float,
) -> dict[str, Any]:
    """The mapping as JSON data. Raises _FailedError, ValueError, OSError."""
    workflow = directory / asked.workflow
    options = [f"--{kind}s={file}" for kind, file in catalogs(known, workflow, directory).items()]
    if job.offered:
        options.append(f"--execution-sites={','.join(map(os.fsdecode, job.offered))}")
    if asked.output_site:
        options.append(f"--output-site={asked.output_site}")
    if environ.get("ADON_CONFIG"):
        options.append(f"--config={directory / environ['ADON_CONFIG']}")
    with tempfile.TemporaryDirectory(prefix="adon-callout-") as scratch:
        saved = Path(scratch, "mapping.json")
        command = [sys.executable, "-I", "-c", _ADON, str(_ROOT), "site", "map"]
        _run([*command, *options, f"--save={saved}", "--", str(workflow)], environ, limit)
        mapping: dict[str, Any] = json.loads(saved.read_bytes())
    name = os.fsdecode(job.fields.get(b"wf.name", b""))
    if name and mapping["workflow"] != name:
        raise _FailedError(
            f"{workflow}: found workflow {mapping['workflow']!r}, asked for {name!r}"
        )
    return mapping


def _run(command: Sequence[str], environ: Mapping[str, str], limit: float) -> str:
    """What a program prints. It gets no stream of ours, and ends with us or at the limit."""
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environ,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 -- this process has one thread
        )
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            raise _FailedError(f"the mapping took longer than {limit:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        errors.seek(0)
        output.seek(0)
        if code != 0:
            said = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise _FailedError(said[-1].removeprefix("adon: ") if said else f"exit {code}")
        return output.read().decode("utf-8", "replace")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _entries(mapping: Mapping[str, Any]) -> Iterator[bytes]:
    """A line per job: its site, then the others from the soonest to the latest end."""
    able: dict[str, dict[str, None]] = {}
    for placed in mapping["placements"]:
        others = [a for a in placed.get("alternatives", ()) if a["t_t_s"] is not None]
        ranked = [a["site"] for a in sorted(others, key=lambda a: float(a["t_t_s"]))]
        sites = list(dict.fromkeys([placed["site"], *ranked]))
        able.setdefault(placed["transformation"], {}).update(dict.fromkeys(sites))
        yield from _line("j" + placed["job"], sites)
    for name, found in able.items():
        yield from _line("t" + name, list(found))


def _line(name: str, sites: list[str]) -> Iterator[bytes]:
    words = [os.fsencode(word) for word in (name, *sites)]
    if not any(b"\t" in word or b"\n" in word for word in words):
        yield b"\t".join(words)


def _able(asked: Asked | None, known: Mapping[str, str], environ: Mapping[str, str]) -> list[bytes]:
    """Lines of what can run where, for the built-in rule; none where that cannot be told."""
    if asked is None:
        return []
    try:
        directory = Path.cwd()
        workflow = directory / asked.workflow
        file = catalogs(known, workflow, directory).get("transformation", workflow)
        script = str(_ROOT / "pegasus_hooks" / "callout_able.py")
        said = _run([sys.executable, "-I", script, str(file)], environ, 2.0)
    except (_FailedError, ValueError, OSError):
        return []
    return [os.fsencode(line) for line in said.splitlines()]


def _keep(table: bytes, folder: bytes, key: bytes) -> None:
    """Write the answers whole or not at all, and remove those of planners that have ended."""
    try:
        place = Path(os.fsdecode(folder))
        place.mkdir(mode=0o700, exist_ok=True)
        if not callout.ours(folder):
            return
        part = place / f"{key.decode()}.{os.getpid()}"
        out = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(out, "wb") as stream:
            stream.write(table)
        part.rename(place / key.decode())
        for file in place.iterdir():
            pid, begun = [*file.name.split("-"), "", ""][:2]
            alive = callout.started(int(pid)).decode() if pid.isdecimal() else ""
            if not alive or begun != alive:
                file.unlink(missing_ok=True)
    except OSError:
        return  # every call then makes its own: slower, and the same answers


def announce(line: str, begun: float | None) -> None:
    """One line on standard error, which the planner logs.

    It reads standard error only where standard output has nothing for it, and it looks every five
    seconds: an answer that came together with the line would hide it. So the answer of the first
    call waits until the planner has taken the line, which it does when it would have looked for the
    answer. It then looks once more at once, so what follows this must follow at once, too.

    ``begun`` is the monotonic time at which the planner started us, None where it is no planner.
    """
    try:
        os.write(2, line.encode("utf-8", "backslashreplace") + b"\n")
        if begun is None or not stat.S_ISFIFO(os.fstat(2).st_mode):
            return
        now = time.monotonic()
        look = begun + PER_JOB_S * math.ceil((now - begun) / PER_JOB_S)
        until = look + _LOOK_S
        unread = b"\1" * 4
        while int.from_bytes(unread, sys.byteorder) and now < until:
            if abs(now - look) > _NEAR_S:
                time.sleep(0.0005)
            unread = fcntl.ioctl(2, termios.FIONREAD, b"\0" * 4)
            now = time.monotonic()
    except OSError:
        return


def _begun() -> float:
    """The monotonic time at which this process was started, to a hundredth of a second."""
    ticks = int(callout.started(os.getpid()) or 0)
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot
    return time.monotonic() - age
