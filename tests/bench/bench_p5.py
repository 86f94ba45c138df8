"""P5: what the hooks cost a job: the scripts as DAGMan starts them, with a real broker behind them.

The submit directory is that of a workflow of 1,013 jobs; the broker is a process of its own with
the simulated controller, its store on disk and its archive. The peers are started in the same way
and do nothing: ``/bin/true``, and Python with nothing to run.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import yaml

from monitors.watcher import registry
from monitors.workflows.planned import transferlist
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks.planner import ExecutableJob, Options, Sources, plan
from pegasus_hooks.prepost import hookscripts
from pegasus_hooks.prepost.prejob import MULTIPART_ENDING
from site_selector.inputs import load_inputs
from tests.bench import Figure, Tell, bench, percentiles
from tests.bench.worlds import ROOT, soykb

ROUNDS = 60
SAMPLES, CHROMOSOMES = 41, 20
STORE = "iplant"
SITES = ("iplant", "mu", "tacc", "local")
TEMPLATE = "bench"
PATHS = {  # every transfer gets a path, however small it is
    "qspec": {"min_throughput": "1 Mb/s"},
    "rspec": {"max_throughput": "1 Gb/s"},
    "break_even": "0 B",
}
HOOKS = ROOT / "pegasus_hooks"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
PYTHON = [sys.executable, "-I", "-S"]
TRUE = "/bin/true"
NOTHING = "python -I -S -c pass"


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """The URL of a broker that serves until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    nodes: list[dict[str, Any]] = [{"name": "s1", "kind": "switch", "dpid": 1}]
    links = []
    for number, site in enumerate(SITES, 1):
        mac = f"02:00:00:00:00:0{number}"
        nodes.append({"name": site, "kind": "site", "address": f"10.10.0.{number}", "mac": mac})
        links.append({"a": site, "b": "s1", "capacity": "1 Gb/s", "ports": {"s1": number}})
    config = {
        "topology": {"nodes": nodes, "links": links},
        "templates": {TEMPLATE: PATHS},
        "controller": {"driver": "simulated"},
        "broker": {
            "listen": address,
            "state": str(folder / "broker.sqlite"),
            "archive": str(folder / "archive.sqlite"),
        },
    }
    file = folder / "adon.yml"
    file.write_text(yaml.safe_dump(config))
    adon = str(Path(sys.executable).with_name("adon"))
    # Tied, so that a bench that is killed leaves no broker behind.
    command = ["setpriv", "--pdeathsig", "KILL", "--", adon, "broker", "--config", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the broker ended before it served")
            yield f"http://{address}"
        finally:
            process.terminate()


def planned(folder: Path) -> tuple[Path, list[ExecutableJob]]:
    """A submit directory of the embedded planner with jobs everywhere, and its jobs."""
    workflow = soykb(folder / "soykb", SAMPLES, CHROMOSOMES)
    inputs, rng = load_inputs(workflow), Random(5)
    mapping = {job: rng.choice(sites) for job, sites in inputs.candidates.items()}
    made = plan(inputs, Sources(workflow), mapping, folder / "submit", STORE, None, Options("u"))
    return made.submit_dir, list(made.jobs.values())


def spawn(command: Sequence[str], cwd: Path, code: int = 0) -> float:
    """Milliseconds from start to end. Raises RuntimeError for any other exit code."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, check=False)
    spent = 1e3 * (time.perf_counter() - began)
    if done.returncode != code or done.stderr:
        raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stderr.decode()}")
    return spent


def move_files(submit_dir: Path, job: ExecutableJob) -> None:
    """Write what pegasus-transfer would tell after having moved every file of a job's list."""
    folder = submit_dir / job.folder
    records = [
        f'  - src_url: "{entry.source.url}"\n    src_label: "{entry.source.site}"\n'
        f'    dst_url: "{entry.destination.url}"\n    dst_label: "{entry.destination.site}"\n'
        f"    success: True\n    start: {int(time.time())}\n    duration: 1.5\n"
        f'    lfn: "{entry.lfn}"\n'
        for entry in transferlist.read(folder / f"{job.name}.in")
        if isinstance(entry, transferlist.Transfer)
    ]
    multipart = folder / f"{job.name}{MULTIPART_ENDING}"
    for old in multipart.iterdir():
        old.unlink()
    (multipart / f"{int(time.time())}-transfer").write_text(
        "".join(f"- transfer_attempts:\n{record}" for record in records)
    )


@bench("P5")
def hook_cost(tell: Tell) -> Iterable[Figure]:
    """Wall-clock time of one script, started like any other program."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        tell(f"{SAMPLES} samples x {CHROMOSOMES} chromosomes are planned (not measured)")
        submit_dir, jobs = planned(folder)
        with broker(folder) as url:
            tell(f"{ROUNDS} rounds of every hook")
            spent = measure(submit_dir, jobs, url, folder)
            live = BrokerClient(url).health()["live"]
            release_count = len(BrokerClient(url).list(state="released"))
    if live or release_count < ROUNDS:
        raise AssertionError(
            f"{live} transits left and {release_count} given back, expected 0 and some"
        )
    peers = (TRUE, NOTHING)
    for hook in (h for h in spent if h not in peers):
        goal = 30.0 if hook == "PRE, other job" else None
        beside = {peer: spent[peer] for peer in peers}
        yield from percentiles(hook, "ms", spent[hook], beside, high=0.95, goal=goal)


def scripts(folder: Path, said: dict[str, str]) -> tuple[str, str]:
    """PRE and POST as `adon install pegasus` writes them, around a check that does nothing."""
    folder.mkdir()
    config = folder / hookscripts.CONFIG_NAME
    config.write_text(json.dumps(said))
    commands = hookscripts.Commands(sys.executable, str(config), TRUE)
    pre, post = folder / hookscripts.PRE_NAME, folder / hookscripts.POST_NAME
    pre.write_text(hookscripts.pre_script(commands))
    post.write_text(hookscripts.exitcode_script(commands))
    for file in (pre, post):
        file.chmod(0o755)
    return str(pre), str(post)


def measure(
    submit_dir: Path, jobs: Iterable[ExecutableJob], url: str, folder: Path
) -> dict[str, list[float]]:
    """Milliseconds of every hook and peer, taken in turn so that all see the same machine."""
    transfers = [job for job in jobs if job.transfers]
    others = [job for job in jobs if job.task is not None]
    said = {"broker": url, "template": TEMPLATE}
    alone = scripts(folder / "alone", said)
    watched = scripts(folder / "watched", {**said, "watch": str(folder / "watch")})
    spent: dict[str, list[float]] = {}

    def run(what: str, command: Sequence[str]) -> None:
        spent.setdefault(what, []).append(spawn(command, submit_dir))

    def output(job: ExecutableJob) -> list[str]:
        return ["-r", "0", "-M", "flow.cache.meta", f"./{job.folder}/{job.name}.out"]

    try:
        for number in range(ROUNDS):
            retry = number // len(transfers)
            transfer, other = transfers[number % len(transfers)], others[number % len(others)]
            run(TRUE, [TRUE])
            run(NOTHING, [*PYTHON, "-c", "pass"])
            run("PRE, other job", [watched[0], other.name, "0", "2"])
            run("POST, other job", [watched[1], "0", *output(other)])
            for nth, (who, (pre, post)) in enumerate(
                {"transfer job": watched, "transfer job, no watcher": alone}.items()
            ):
                attempt = str(2 * retry + nth)
                run(f"PRE, {who}", [pre, transfer.name, attempt, "2"])
                move_files(submit_dir, transfer)
                run(f"POST, {who}", [post, attempt, *output(transfer)])
    finally:
        registry.end(folder / "watch")
    return spent
