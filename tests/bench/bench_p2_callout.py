"""P2: what the callout takes, beside what the planner sleeps between its calls.

Called by a process that does as the planner does. The first call has the whole workflow mapped; the
peers answer the same files with one fixed site.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from site_selector.inputs import Inputs, load_inputs
from tests.bench import Figure, Tell, bench
from tests.bench.worlds import make_platform, soykb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from callout_world import CALLOUT, CLASS, callout_text

SITES = 10
SHAPES = ((41, 20), (249, 36))  # 1,013 and 10,005 jobs
CALLS = 60  # measured after the first one
_PLANNER = """
import json, subprocess, sys, time
asked = json.load(sys.stdin)
for command in asked["commands"]:
    taken, said = [], ""
    for file in asked["files"]:
        began = time.perf_counter()
        done = subprocess.run([*command, file], env=asked["env"], capture_output=True, check=True)
        taken.append(time.perf_counter() - began)
        assert done.stdout.startswith(b"SOLUTION:"), done
        said += done.stderr.decode()
    print(json.dumps({"taken": taken, "said": said}), flush=True)
"""
_PEERS = {
    "/bin/sh": ["/bin/sh", "-c", "echo SOLUTION:site0"],
    "python -I -S": [sys.executable, "-I", "-S", "-c", "print('SOLUTION:site0')"],
}


@bench("P2")
def callout_time(tell: Tell) -> Iterable[Figure]:
    """Per job at 1,000 and at 10,000 jobs, ten sites, without the planner's sleep."""
    for samples, chromosomes in SHAPES:
        with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
            folder = Path(name)
            workflow = soykb(folder, samples, chromosomes)
            store = make_platform(folder, 1, SITES)
            inputs = load_inputs(workflow)
            jobs = len(inputs.workflow.jobs)
            tell(f"{jobs:,} jobs: {CALLS} calls each")
            ours, *peers = called(folder, workflow, store, inputs)
        later = statistics.mean(ours[1:])
        yield Figure(
            f"callout without the planner's sleep, {jobs:,} jobs x {SITES} sites",
            1e3 * (ours[0] + later * (jobs - 1)) / jobs,
            "ms per job",
            better="lower",
            peers={name: 1e3 * statistics.mean(p) for name, p in zip(_PEERS, peers, strict=True)},
        )
        yield Figure(f"of that its first call, {jobs:,} jobs", ours[0], "s", better="lower")


def called(folder: Path, workflow: Path, store: str, inputs: Inputs) -> list[list[float]]:
    """Seconds of each call, of ADON's callout and of the peers."""
    servers = {name: [f"gsiftp://{name}.example.org"] for name in inputs.sites}
    files = []
    for number, job in enumerate(inputs.workflow.order[: CALLS + 1]):
        path = folder / f"call{number}"
        transformation = inputs.workflow.jobs[job].transformation
        path.write_text(
            callout_text(job, transformation, workflow=inputs.workflow.name, servers=servers)
        )
        files.append(str(path))
    words: Sequence[str] = ("--output-sites", store, workflow.name)
    planner = subprocess.run(
        [sys.executable, "-I", "-c", _PLANNER, CLASS, *words],
        input=json.dumps(
            {
                "files": files,
                "commands": [[sys.executable, "-I", "-S", str(CALLOUT)], *_PEERS.values()],
                "env": {"TMP": str(folder), "HOME": str(Path.home())},
            }
        ),
        cwd=workflow.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    replies = [json.loads(line) for line in planner.stdout.splitlines()]
    if "built-in rule" in replies[0]["said"]:
        raise RuntimeError(f"ADON did not map: {replies[0]['said']}")
    return [answers["taken"] for answers in replies]
