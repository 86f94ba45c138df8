"""An adon.yml whose machines are processes of this one, and join a pool of the testbed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from network_world import star

from condor_plugins.pool.cloud.workerconfig import boot_token
from examples.testbed import procs
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import DOMAIN
from monitors.archive.archive import Archive

# What is peculiar to a pool whose machines are all this one, without names of their own.
ONE_MACHINE = {
    "NO_DNS": "True",
    "DEFAULT_DOMAIN_NAME": DOMAIN,
    "NETWORK_HOSTNAME": f"worker.{DOMAIN}",
    "NETWORK_INTERFACE": "127.0.0.1",
    "BIND_ALL_INTERFACES": "False",
    "ENABLE_IPV6": "False",
    "UID_DOMAIN": DOMAIN,
    "FILESYSTEM_DOMAIN": DOMAIN,
    "SEC_USE_FAMILY_SESSION": "False",
    "MOUNT_UNDER_SCRATCH": "",
    "STARTD_ENFORCE_DISK_LIMITS": "False",
    "DISCARD_SESSION_KEYRING_ON_STARTUP": "False",
}
# One that drains tells that it has ended its last job no sooner.
TALKATIVE = ONE_MACHINE | {"UPDATE_INTERVAL": "1"}


def write_config(folder: Path, pool: Pool, **more: Any) -> Path:
    """They join by a token that may do no more than that."""
    (folder / "token").write_text(boot_token(pool.run, 3600, f"{pool.user.name}@{DOMAIN}"))
    expansion = {
        "flavours": {"small": {"cores": 2, "memory_mb": 512}},
        "site": "mu",
        "idle": "5 min",
        "release": str(pool.condor_dir / "root/usr"),
        "token_file": "token",
        "config": ONE_MACHINE,
        "environment": {procs.MARK: str(pool.run_dir)},
    }
    data = {
        "topology": star("local", "mu"),
        "pool": {"collector": pool.collector},
        "expansion": expansion | more,
    }
    path = folder / "adon.yml"
    path.write_text(yaml.safe_dump(data))
    return path


def adon(config: Path, *words: str) -> list[str]:
    return [sys.executable, "-I", "-m", "adon", "pool", *words, "--config", str(config)]


@contextmanager
def at_work(pool: Pool, command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "daemon.log").open("ab") as log:
        process = subprocess.Popen(pool.command(command), env=pool.env(), stdin=-3, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def none_left(pool: Pool, config: Path) -> bool:
    """Neither machines nor their slots."""
    folders = {path.parent.name for path in config.parent.glob("adon-workers/*/machine.json")}
    if folders - {"last-ended"}:  # asking takes a second
        return False
    there = json.loads(pool.run([*adon(config, "show"), "--json"]))["machines"]
    slots = pool.run(["condor_status", "-constraint", "AdonWorker isnt undefined", "-af", "Name"])
    return not there and not slots


def submit_fan(pool: Pool, folder: Path, wide: int) -> None:
    """Of a DAG of ``a``, then so many ``b``, then ``z``; each has its submit file there."""
    names = [f"b{n}" for n in range(wide)]
    (folder / "x.dag").write_text(
        "JOB a a.sub\nJOB z z.sub\n"
        + "".join(f"JOB {name} b.sub\n" for name in names)
        + f"PARENT a CHILD {' '.join(names)}\nPARENT {' '.join(names)} CHILD z\n"
    )
    words = ["condor_submit_dag", "-terse", "-notification", "never", "x.dag"]
    pool.run(words, cwd=folder)


def happened(log: Path, event: str) -> int:
    """How often, by a job log."""
    return len(re.findall(rf"^{event} \(", log.read_text(), re.M)) if log.exists() else 0


def recorded(folder: Path, metric: str) -> list[Any]:
    """What the daemon wrote into its archive."""
    with Archive(folder / "adon-archive.sqlite") as archive:
        return archive.query(metric)
