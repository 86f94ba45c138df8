#!/usr/bin/env python3
"""Runs one job of a workflow at its site, and tells how it went.

HTCondor brings this file to the site and gives it the task as standard input:

    {"id", "name", "site", "transformation", "directory", "executable", "arguments", "stdin",
     "stdout", "stderr", "inputs", "outputs", "staged_executable"}

It runs the executable in ``directory`` and prints, after whatever the program printed, one line

    adon-job-record: {"job", "site", "start", "end", "exitcode", "cpu_s", "inputs", "outputs", …}

with sizes in bytes and times in seconds: what kickstart reports on machines that have Pegasus. The
exit code is the program's own (128 + n for signal n), 1 where a declared output is missing, 126
where the program cannot be run. Standard library only, one file, any Python from 3.7.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

PREFIX = "adon-job-record:"
CANNOT_RUN = 126
SIGNALLED = 128


def main() -> int:
    """Run the task on standard input; returns the exit code."""
    task = json.load(sys.stdin)
    start = time.time()
    inputs: dict[str, int] = {}
    try:
        Path(task["directory"]).mkdir(parents=True, exist_ok=True)
        os.chdir(task["directory"])
        inputs = file_sizes(task["inputs"])
        code = run(task)
    except OSError as error:
        print(f"{task['executable']}: {error}", file=sys.stderr)
        code = CANNOT_RUN
    end = time.time()
    outputs = file_sizes(task["outputs"])
    missing = [name for name in task["outputs"] if name not in outputs]
    if code == 0 and missing:
        print(f"declared outputs are missing: {', '.join(missing)}", file=sys.stderr)
        code = 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = {
        "job": task["id"],
        "name": task["name"],
        "site": task["site"],
        "transformation": task["transformation"],
        "host": socket.gethostname(),
        "start": start,
        "end": end,
        "exitcode": code,
        "cpu_s": used.ru_utime + used.ru_stime,
        "max_rss_bytes": used.ru_maxrss * 1024,
        "inputs": inputs,
        "outputs": outputs,
        "missing": missing,
    }
    # A new line first: the program may have left one unfinished.
    print(f"\n{PREFIX} {json.dumps(record)}", flush=True)
    return code


def run(task: dict[str, Any]) -> int:
    """Run the program with its streams; returns its exit code. Raises OSError."""
    program = task["executable"]
    if task["staged_executable"]:
        staged = Path(program).absolute()
        staged.chmod(staged.stat().st_mode | stat.S_IXUSR)
        program = str(staged)
    elif os.sep not in program:
        program = shutil.which(program) or program
    for name in task["outputs"]:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        stdin = files.enter_context(Path(task["stdin"] or os.devnull).open("rb"))
        out, err = (
            files.enter_context(Path(task[name]).open("wb")) if task[name] else None
            for name in ("stdout", "stderr")
        )
        sys.stdout.flush()
        code = subprocess.call([program, *task["arguments"]], stdin=stdin, stdout=out, stderr=err)
    return code if code >= 0 else SIGNALLED - code


def file_sizes(names: list[str]) -> dict[str, int]:
    """Bytes of each of the named files that is there."""
    return {name: Path(name).stat().st_size for name in names if Path(name).exists()}


if __name__ == "__main__":
    sys.exit(main())
