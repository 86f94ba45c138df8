"""A real Pegasus of our own: a copy, so that whatever is installed into it is gone with it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner_world import MAPPING, ROOT, Case, Url, by_file, make_case

from examples.testbed.pool import Pool
from pegasus_hooks import pegasus_plan
from pegasus_hooks.install.edits import carry_out
from pegasus_hooks.install.home import home_at, place_for_all
from pegasus_hooks.install.installing import changes_to_undo

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def copy_pegasus(where: Path) -> Path:
    """The Pegasus on PATH, without any ADON in it."""
    planner = pegasus_plan.find_planner()
    assert planner is not None
    shutil.copytree(planner.resolve().parents[1], where, symlinks=True)
    place = place_for_all(home_at(where))
    carry_out(changes_to_undo(place), place.own)
    return where


def pack_workers(home: Path) -> None:
    """What the planner sends along with jobs, where an installation comes without: its own programs
    for this machine, which everything here is on."""
    folder = home / "share/pegasus/worker-packages"
    if folder.exists():
        return
    folder.mkdir()
    release = platform.freedesktop_os_release()
    system = f"{platform.machine()}_{release['ID'][:3]}_{release['VERSION_ID']}"
    version = subprocess.check_output([home / "bin/pegasus-config", "--version"], text=True).strip()
    with tarfile.open(folder / f"pegasus-worker-{version}-{system}.tar.gz", "w:gz") as package:
        package.add(home / "bin", f"pegasus-{version}/bin")
        for name in ("lib", "share"):
            link = tarfile.TarInfo(f"pegasus-{version}/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, str(home / name)
            package.addfile(link)


def lists_inputs(home: Path) -> bool:
    """Whether its kickstart writes the sizes of what a job reads, as it does from 5.1.3 on."""
    version = subprocess.check_output([home / "bin/pegasus-version"], text=True)
    return tuple(map(int, version.partition("-")[0].split("."))) >= (5, 1, 3)


def tree(root: Path) -> dict[str, object]:
    """Every file with mode and content, every folder."""
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.is_file() and path.read_bytes())
        for path in root.rglob("*")
        if "__pycache__" not in path.parts
    }


def make_pegasus_case(root: Path, home: Path, url: Url = by_file) -> Case:
    """The small workflow at sites on one file system, which Pegasus has to be told, and where it is
    installed itself."""
    case = make_case(root, url)

    def sites(document: Any) -> None:
        for site in document["sites"]:
            # No WHERE: of local's environment Pegasus makes DAGMan's, and quotes no space.
            site["profiles"]["env"] = {"PEGASUS_HOME": str(home)}
            site["profiles"]["pegasus"].update({"auxillary.local": "true", "adon.workers": "1"})

    def needs(document: Any) -> None:
        for entry in document["transformations"]:
            entry["profiles"] = {"pegasus": {"memory": 128, "diskspace": 64}}

    def files(document: Any) -> None:
        for use in (use for job in document["jobs"] for use in job["uses"]):
            use["registerReplica"] = False

    # Pegasus makes no folders for the files of jobs in a shared file system.
    shout = case.root / "bin/shout"
    shout.write_text(shout.read_text().replace("tr a-z", "mkdir -p out; tr a-z"))
    case.change("workflow", files)
    case.change("sites", sites)
    case.change("transformations", needs)
    case.change("replicas", lambda d: d["replicas"][0]["pfns"][0].update(site="local"))
    (case.root / "pegasus.properties").write_text("pegasus.data.configuration = sharedfs\n")
    return case


def case_at_both_sites(root: Path, home: Path) -> Case:
    """So that there is something to move between them."""
    case = make_pegasus_case(root, home)

    def hints(document: Any) -> None:
        for job in document["jobs"]:
            job["profiles"] = {"selector": {"execution.site": MAPPING[job["id"]]}}

    case.change("workflow", hints)
    return case


def case_in_another_workflow(root: Path, home: Path) -> Case:
    """The same as the only job of another workflow, planned by DAGMan when its turn comes."""
    case = case_at_both_sites(root, home)
    (root / "workflow.yml").rename(root / "inner.yml")
    inner = {
        "type": "pegasusWorkflow", "file": "inner.yml", "id": "sub",
        "arguments": ["--sites", "mu,tacc", "--output-sites", "local"],
        "uses": [{"lfn": "inner.yml", "type": "input", "forPlanning": True}],
    }  # fmt: skip
    outer = {"pegasus": "5.0.4", "name": "outer", "jobs": [inner]}
    (root / "workflow.yml").write_text(json.dumps(outer))
    replica = {"lfn": "inner.yml", "pfns": [{"site": "local", "pfn": f"file://{root}/inner.yml"}]}
    case.change("replicas", lambda d: d["replicas"].append(replica))
    with (root / "pegasus.properties").open("a") as stream:  # the inner planner looks elsewhere
        stream.write(f"pegasus.catalog.replica = YAML\npegasus.catalog.replica.file = {root}")
        stream.write("/replicas.yml\n")
    return case


@dataclass(frozen=True)
class User:
    """Somebody at a shell, with a Pegasus and a pool."""

    pool: Pool
    home: Path

    def types(self, command: Sequence[str], cwd: Path) -> str:
        """What a command prints, which has to succeed."""
        env = self.pool.env()
        wrap, _, rest = env["PATH"].partition(":")
        env["PATH"] = f"{wrap}:{self.home / 'bin'}:{rest}"
        env["PEGASUS_METRICS"] = "false"
        env["_CONDOR_DAGMAN_USER_LOG_SCAN_INTERVAL"] = "1"  # seconds; 5 is long for ten short jobs
        env["PYTHONPATH"] = str(ROOT)
        env["XDG_CACHE_HOME"] = str(CACHE)
        done = subprocess.run(
            self.pool.command(command), env=env, cwd=cwd, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def adon(self, *arguments: str, cwd: Path) -> str:
        """Run ``adon``; what it prints."""
        code = "import sys; from adon.cli.main import main; sys.exit(main())"
        return self.types([sys.executable, "-c", code, *arguments], cwd)


def end_watchers(root: Path) -> None:
    """End the watchers whose configuration is below ``root``: they outlive workflows by a while."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"/watcher.py") for word in words[:5]) and any(
            word.startswith(f"{root}/".encode()) for word in words
        ):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGTERM)
