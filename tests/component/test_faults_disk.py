"""Hooks on a disk that is full, or nearly: a small file system of its own, in a mount namespace."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults_flow import Flow
from faults_world import Service, nothing_held, some, until
from hooks_world import POST, PRE

from network_provisioner.base.model import TransitState

pytestmark = pytest.mark.component

# A disk of so many pages gets the submit directory, and all but a few of them are filled up.
FULL = """\
set -e
mount -t tmpfs -o size=256k,nr_inodes=300 tmpfs "$1"
cp -a "$2/." "$1/"
cd "$1"
for step in $4; do
    case "$step" in
        fill) head -c 300000 /dev/zero > filler 2>/dev/null || true ;;
        free*) truncate -s "-$(( ${step#free} * 4096 ))" filler ;;
        pre) "$3" -I -S "$5" --config hooks.json "$7" 0 2 || echo "pre: exit code $?" ;;
        post) "$3" -I -S "$6" --config hooks.json "$7" 0 3 || echo "post: exit code $?" ;;
    esac
done
cat adon-hooks.jsonl 2>/dev/null || true
"""
OWN_MOUNTS = ["unshare", "--mount", "--propagation", "private"]
if os.geteuid() != 0:
    OWN_MOUNTS += ["--user", "--map-root-user"]


def mounts() -> bool:
    """Whether this machine lets us have mounts of our own."""
    words = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


needs_mounts = pytest.mark.skipif(not mounts(), reason="no mount namespace can be had")


def hooks(flow: Flow, steps: str) -> str:
    """What hooks said on a full disk: on standard error, then in the journal."""
    disk = flow.folder.parent / "disk"
    disk.mkdir(exist_ok=True)
    words = [*OWN_MOUNTS, "sh", "-c", FULL, "sh", str(disk), str(flow.folder), sys.executable]
    done = subprocess.run(
        [*words, steps, str(PRE), str(POST), flow.job(0)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@needs_mounts
def test_nothing_is_asked_for_that_could_not_be_given_back(
    service: Service, tmp_path: Path
) -> None:
    flow = Flow(tmp_path / "run", service, 1).write()
    output = hooks(flow, "fill pre")
    assert "exit code" not in output and "No space left on device" in output
    assert service.held() == []
    (transit,) = flow.transits()
    assert transit.state is TransitState.BEST_EFFORT
    assert "the submit directory cannot be written" in transit.reason


@pytest.mark.long
@needs_mounts
@pytest.mark.parametrize("free", some(range(1, 9), 3))
def test_room_for_some_of_it(service: Service, tmp_path: Path, free: int) -> None:
    flow = Flow(tmp_path / "run", service, 1).write()
    said = hooks(flow, f"fill free{free} pre fill post")
    assert "pre: exit code" not in said
    assert "post: exit code 3" in said  # the job's own
    nothing_held(service)
    assert len(flow.transits()) == 1


@needs_mounts
def test_full_between_the_hooks(service: Service, tmp_path: Path) -> None:
    flow = Flow(tmp_path / "run", service, 1).write()
    assert "post: exit code 3" in hooks(flow, "pre fill post")
    nothing_held(service)
    (transit,) = flow.transits()
    assert transit.state is TransitState.RELEASED


@pytest.mark.long
@needs_mounts
def test_no_room_for_the_watchers_notes(service: Service, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    flow = Flow(tmp_path / "run", service, 1, config={"watch": str(disk)}).write()
    disk.mkdir()
    script = (
        'set -e; mount -t tmpfs -o size=16k tmpfs "$1"; '
        'head -c 300000 /dev/zero > "$1/filler" 2>/dev/null || true; shift; exec "$@"'
    )
    words = [*OWN_MOUNTS, "sh", "-c", script, "sh", str(disk), sys.executable, "-I", "-S"]
    hook = [str(PRE), "--config", str(flow.folder / "hooks.json"), flow.job(0), "0", "2"]
    done = subprocess.run([*words, *hook], cwd=flow.folder, check=False)
    assert done.returncode == 0
    # Nobody would look after a path whose POST never runs: said, whatever was decided.
    assert any("No space left on device" in line["reason"] for line in flow.journal())
    run_hook(POST, flow, flow.job(0), "0")
    nothing_held(service)
    assert len(flow.transits()) == 1


@pytest.mark.long
@needs_mounts
def test_the_brokers_own_disk_is_full(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    disk = folder / "disk"
    disk.mkdir(parents=True)
    mounting = 'mount -t tmpfs -o size=2m tmpfs "$1"; shift; exec "$@"'
    state = {
        "listen": "",
        "state": str(disk / "broker.sqlite"),
        "archive": str(folder / "a.sqlite"),
    }
    before = [*OWN_MOUNTS, "sh", "-c", mounting, "sh", str(disk)]
    with Service(folder, before=before, broker=state) as service:
        flow = Flow(tmp_path / "run", service, 2).write()
        filler = Path(f"/proc/{service.pid()}/root{disk}/filler")
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as full:
            while True:
                full.write(bytes(4096))
        first, second = flow.jobs
        for job in flow.jobs:
            run_hook(PRE, flow, job, "2")
        said = [line["reason"] for line in flow.journal() if line["event"] == "warning"]
        assert len(said) >= 2 and all("best effort" in reason for reason in said), said
        filler.unlink()
        for job in flow.jobs:
            run_hook(POST, flow, job, "0")
        nothing_held(service)
        until(
            lambda: {t.request.job for t in flow.transits()} == {first, second}, said=service.says
        )
        assert all(t.reason for t in flow.transits())


def run_hook(script: Path, flow: Flow, job: str, last: str) -> None:
    """As DAGMan does."""
    words = [sys.executable, "-I", "-S", str(script), "--config", "hooks.json", job, "0", last]
    subprocess.run(words, cwd=flow.folder, check=True)
