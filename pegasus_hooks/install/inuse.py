"""Which workflows that are queued or run need what is installed. They would fail without it.

Asked are the kernel, for DAGMan processes, and HTCondor's queue, where there is one: it also knows
those that wait for their DAGMan to start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from monitors.workflows.planned import job_files
from network_provisioner.base.errors import AdonError
from pegasus_hooks import plugin
from pegasus_hooks.install.home import Place, real
from pegasus_hooks.install.parts import HOOKS, SELECTOR

PROC = Path("/proc")
_OPTION = b"-Dag"  # by which DAGMan, and Pegasus's program around it, are told what to run
_PLANNING = b".pre.sh "  # the PRE by which DAGMan plans a sub-workflow
_QUEUE = ("condor_q", "-allusers", "-constraint", "JobUniverse == 7", "-af", "Iwd")
_QUEUE_S = 20.0

Folders = Callable[[], Iterable[Path]]


def needing(place: Place, sources: Iterable[Folders] = ()) -> dict[str, list[Path]]:
    """By part the submit directories, as far as the user may see them, that need its programs;
    parts that nobody needs are left out. ``sources`` tell where DAGs run."""
    found = sorted({folder for source in sources or (running, queued) for folder in source()})
    needs = {
        SELECTOR: [folder for folder in found if _plans(folder, place.planner)],
        HOOKS: [folder for folder in found if _calls(folder, os.fsencode(place.programs) + b"/")],
    }
    return {name: folders for name, folders in needs.items() if folders}


def running(proc: Path = PROC) -> Iterator[Path]:
    """Where this machine's DAGMan processes run."""
    for process in proc.glob("[0-9]*"):
        try:
            if _OPTION in (process / "cmdline").read_bytes().split(b"\0"):
                yield (process / "cwd").readlink()
        except OSError:  # it ended, or is somebody else's
            continue


def queued() -> Iterator[Path]:
    """Where the jobs run that DAGMan is to HTCondor; nowhere without an HTCondor that answers."""
    if shutil.which(_QUEUE[0]) is None:
        return
    try:
        done = subprocess.run(
            _QUEUE, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_QUEUE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return
    yield from (Path(line) for line in done.stdout.splitlines() if line.startswith("/"))


def _calls(folder: Path, scripts: bytes) -> bool:
    """Whether jobs have one of the ``scripts``."""
    return any(b" " + scripts in text for text in _texts(folder, "*.dag"))


def _plans(folder: Path, planner: Path | None) -> bool:
    """Whether there are sub-workflows, which ``planner`` is still to plan with the selector."""
    if planner is None:  # DAGMan does not get the CLASSPATH of a user's shell
        return False
    selector = plugin.SITE_SELECTOR_CLASS.encode()
    if not any(_PLANNING in text for text in _texts(folder, "*.dag")) or not any(
        selector in text for text in _texts(folder, "pegasus.*.properties")
    ):
        return False
    with contextlib.suppress(AdonError):
        return real(Path(job_files.braindump(folder).get("planner", ""))) == real(planner)
    return False


def _texts(folder: Path, pattern: str) -> Iterator[bytes]:
    for file in folder.glob(pattern):
        with contextlib.suppress(OSError):
            yield file.read_bytes()
