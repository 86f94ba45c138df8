"""The demo, two of whose jobs are spoiled after they were planned and before they are submitted."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from adon.cli.main import main
from examples.demo import launch, line, running
from examples.demo.__main__ import build_parser
from examples.testbed.pool import Pool
from pegasus_hooks.planner.model import PlannedWorkflow

WORDS = "echo reading >&2; echo cannot do it >&2; exit 7"
start = running.start
box_run = launch.box.run


def spoiled(planned: PlannedWorkflow, pool: Pool) -> int:
    """Have one job fail and another ask for a site that is not there, and start."""
    (task,) = planned.submit_dir.rglob("bwa_index_ID*.task")
    program = {"executable": "/bin/sh", "arguments": ["-c", WORDS], "stdout": None, "stderr": None}
    task.write_text(json.dumps(json.loads(task.read_text()) | program))
    (file,) = planned.submit_dir.rglob("faidx_ID*.sub")
    text, count = re.subn(r'PegasusSite == "\w+"', 'PegasusSite == "mars"', file.read_text())
    assert count
    file.write_text(text)
    return start(planned, pool)


def boxed(words: list[str], *, tied: bool) -> int:
    """In a box as well."""
    return box_run([sys.executable, str(Path(__file__)), "in the box", words[-1]], tied=tied)


if __name__ == "__main__":
    running.start = spoiled
    launch.box.run = boxed
    inside = sys.argv[1:2] == ["in the box"]
    sys.exit(line.main(sys.argv[2:]) if inside else main(parser=build_parser()))
