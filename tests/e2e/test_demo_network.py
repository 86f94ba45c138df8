"""The demo as root, on a real network: its report is true, and nothing of it stays behind.

One state directory throughout: a first small run; then, which takes long, runs that are killed, and
a second run of the default size."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests
from demo_runs import (
    ADON,
    KILLED,
    SMALL,
    Demo,
    Ran,
    children,
    demo,
    left_of,
    run,
    send,
)

from adon.machine import box
from examples.soykb.scenario import DEMO_LAYOUT
from examples.testbed.ports import free_port
from monitors.archive.archive import Archive
from network_provisioner.topology.data import topology_from_dict

# Semaphores of Python's multiprocessing, and what PostgreSQL has while a database is made: tests
# that run meanwhile do both, and no demo does the second.
_OTHERS = re.compile(r"/(sem\.mp-|PostgreSQL\.)")
# Sysctls that count or adapt by themselves.
_RESTLESS = re.compile(r"/(nf_conntrack_count|flush|tcp_fastopen_key)\Z")


def machine() -> dict[str, Any]:
    """Names of all that can be left, and the values of all network sysctls."""
    netns = Path("/run/netns")
    return {
        "network namespaces": _entries(netns) if netns.exists() else "no directory",
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "interfaces": _entries(Path("/sys/class/net")),
        "sysctls": _sysctls(Path("/proc/sys/net")),
        "control groups": sorted(str(p) for p in Path("/sys/fs/cgroup").rglob("*condor*")),
        "shared memory": [e for e in _entries(Path("/dev/shm")) if not _OTHERS.search(e)],
    }


def _entries(folder: Path) -> list[str]:
    return sorted(str(entry) for entry in folder.iterdir())


def _sysctls(top: Path) -> dict[str, str]:
    values = {}
    for folder, _, files in os.walk(top):
        for name in files:
            path = Path(folder) / name
            if not _RESTLESS.search(str(path)):
                with suppress(OSError):  # some can only be written
                    values[str(path)] = path.read_text().strip()
    return values


pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0  # nothing but runs takes nearly as long
# Without make's set-up, which is there for users who run tests.
MAKE_DEMO = ("make", "-o", "setup", "demo")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As much of a checkout as `make demo` needs."""
    reason = box.can_box()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("network")
    (folder / "Makefile").symlink_to(ROOT / "Makefile")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def before(place: Path) -> dict[str, Any]:
    return machine()


@pytest.fixture(scope="module")
def first(place: Path, before: dict[str, Any]) -> Ran:
    """A small run in a fresh state."""
    return run(place)


@pytest.fixture(scope="module")
def report(first: Ran) -> dict[str, Any]:
    return first.report


@pytest.fixture(scope="module")
def given(first: Ran) -> list[dict[str, Any]]:
    """The transits with a path; not those whose hooks waited in vain for a busy machine."""
    transits = [t for t in first.report["transits"] if t["path"] and not first.late(t["job"])]
    assert transits
    return transits


def test_the_dashboard_shows_the_run(first: Ran) -> None:
    listen = f"127.0.0.1:{free_port()}"
    dashboard = subprocess.Popen(
        [ADON, "dashboard", "--listen", listen], cwd=first.place, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                page = requests.get(f"http://{listen}/", timeout=PATIENCE_S)
                break
            except requests.ConnectionError:
                assert dashboard.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        assert page.ok and "<title>ADON" in page.text
        (flow,) = requests.get(f"http://{listen}/v1/workflows", timeout=PATIENCE_S).json()
        assert (flow["name"], flow["state"], flow["percent_done"]) == ("soykb", "done", 100.0)
        url = f"http://{listen}/v1/workflows/{flow['id']}/analysis"
        analysis = requests.get(url, timeout=PATIENCE_S).json()
        assert analysis["outcomes"] == {"done": flow["status"]["total"]}
        assert analysis["transfers"]
        decisions = requests.get(f"http://{listen}/v1/decisions", timeout=PATIENCE_S).json()[
            "decisions"
        ]
        assert {"transit", "placement"} == {decision["kind"] for decision in decisions}
    finally:
        dashboard.terminate()
        dashboard.wait(PATIENCE_S)
    assert left_of(first.place) == []


def test_it_succeeds_and_leaves_nothing(first: Ran, before: dict[str, Any]) -> None:
    assert first.code == 0, first.output
    assert left_of(first.place) == []
    assert machine() == before


def jobs(samples: int, chromosomes: int) -> int:
    """How many the abstract workflow has."""
    return 9 + 4 * samples + samples * chromosomes + chromosomes


def test_the_report_says_what_ran(first: Ran, report: dict[str, Any]) -> None:
    assert report["planner"] in ("embedded", "pegasus-plan")
    assert report["network"] == "openflow"
    workflow = report["workflow"]
    assert (workflow["name"], workflow["state"], workflow["jobs"]) == (
        "soykb",
        "success",
        jobs(1, 1),
    )
    assert workflow["makespan_s"] > 0
    assert report["status_records"] > workflow["jobs"]
    assert report["open_reservations_at_end"] == 0
    assert report["flows_left_on_switches"] == 0
    assert first.warnings == []


def test_the_science_is_right(report: dict[str, Any]) -> None:
    assert report["science"]["planted_snps"] >= 300
    assert report["science"]["recall"] >= 0.99
    assert report["science"]["precision"] >= 0.97


def test_every_choice_is_told_with_all_its_terms(report: dict[str, Any]) -> None:
    placements = report["placements"]
    assert len({p["job"] for p in placements}) == report["workflow"]["jobs"]
    for placement in placements:
        offers = {offer["site"]: offer for offer in placement["alternatives"]}
        assert placement["site"] in offers
        assert len(offers) > 1
        assert placement["transformation"].startswith("soykb::")
        for offer in offers.values():
            terms = [offer[name] for name in ("t_q_s", "t_c_s", "t_n_s")]
            assert offer["t_t_s"] == pytest.approx(sum(terms))


def test_transits_had_paths_of_the_network(
    first: Ran, report: dict[str, Any], given: list[dict[str, Any]]
) -> None:
    joined = {
        frozenset((link.a, link.b)) for link in topology_from_dict(DEMO_LAYOUT.topology()).links
    }
    inputs = [t for t in report["transits"] if t["job"].startswith("stage_in")]
    assert inputs and any(t in given or first.late(t["job"]) for t in inputs)
    for transit in given:
        path = transit["path"]
        assert (path[0], path[-1]) == (transit["src"], transit["dst"])
        assert all(frozenset(hop) in joined for hop in pairwise(path))
        assert 0 < transit["requested_bps"] <= transit["granted_bps"]
        assert 0 < transit["requested_at"] <= transit["installed_at"] < transit["released_at"]
        assert transit["bytes"] > 0
        # It moved while the path was its own: not faster than over all that time.
        held_s = transit["released_at"] - transit["installed_at"]
        assert transit["goodput_bps"] >= transit["bytes"] * 8 / held_s


def test_packets_were_seen_on_the_chosen_paths(
    report: dict[str, Any], given: list[dict[str, Any]]
) -> None:
    # Transits of the same two sites share a counter while they overlap, so pairs are compared.
    for pair in {(t["src"], t["dst"]) for t in given} - {("iplant", "local")}:
        # Of what iget fetches from there, the connections are known a second after they began.
        own = [t for t in report["transits"] if t["path"] and (t["src"], t["dst"]) == pair]
        if any(t not in given for t in own):
            continue  # what that one moved nobody knows
        moved, counted = sum(t["bytes"] for t in own), sum(t["switch_bytes"] for t in own)
        # On top come headers, GSI's handshakes, and whatever was lost on the way and sent again. A
        # switch's counter is a little behind: what came last may not be in it at the release.
        assert 0.9 * moved <= counted <= 1.5 * moved, own


def test_the_page_needs_no_other_file(first: Ran) -> None:
    page = first.page
    assert page.lower().startswith("<!doctype html>")
    named = re.findall(r"""\b(?:src|href)\s*=\s*["']?([^"'\s>]+)|\burl\(([^)]*)\)""", page)
    assert [a or b for a, b in named if not (a or b).startswith(("#", "data:"))] == []
    assert "@import" not in page
    for transit in first.report["transits"]:
        assert transit["job"] in page


def holds_the_lock(demo_run: Demo) -> None:
    lock = demo_run.place / ".adon/lock"
    demo_run.until(lambda: lock.read_text() == str(demo_run.pid), "its lock")


def itself(demo_run: Demo) -> int:
    return demo_run.pid


def init_of_the_box(demo_run: Demo) -> int:
    return demo_run.until(demo_run.init, "the box's init")


def demo_in_the_box(demo_run: Demo) -> int:
    return demo_run.until(lambda: children(init_of_the_box(demo_run)), "the demo in the box")[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "moment", "victim", "code"),
    [
        (SMALL, holds_the_lock, itself, -signal.SIGKILL),
        (SMALL, lambda demo_run: demo_run.says("network: "), init_of_the_box, KILLED),
        (SMALL, lambda demo_run: demo_run.runs("condor_master"), demo_in_the_box, KILLED),
        (MAKE_DEMO, lambda demo_run: demo_run.runs("globus-url-copy"), itself, -signal.SIGKILL),
    ],
    ids=["at-its-start", "init-in-set-up", "inside-in-set-up", "make-in-the-workflow"],
)
@pytest.mark.usefixtures("first")
def test_nothing_is_left_of_a_killed_run(
    place: Path,
    before: dict[str, Any],
    command: tuple[str, ...],
    moment: Callable[[Demo], object],
    victim: Callable[[Demo], int],
    code: int,
) -> None:
    with demo(place, command) as demo_run:
        moment(demo_run)
        send(victim(demo_run), signal.SIGKILL)
        assert demo_run.ended().code == code
        assert left_of(place) == []
    assert machine() == before


@pytest.fixture(scope="module")
def second(first: Ran) -> Ran:
    """A run of the default size in the state that the first and the killed ones left."""
    return run(first.place, MAKE_DEMO)


@pytest.mark.long
def test_the_next_run_works_and_has_learnt(second: Ran, before: dict[str, Any]) -> None:
    assert second.code == 0, second.output
    report = second.report
    workflow = report["workflow"]
    assert (workflow["state"], workflow["jobs"]) == ("success", jobs(3, 2))
    assert report["science"]["recall"] >= 0.99
    assert report["science"]["precision"] >= 0.97
    assert report["earlier_measurements"] > 0
    assert report["changed_by_measurements"]
    sources = {
        about["source"]
        for placement in report["placements"]
        for offer in placement["alternatives"]
        for about in offer["inputs"].values()
    }
    assert "archive" in sources
    with Archive(second.place / ".adon" / "archive.sqlite", read_only=True) as archive:
        for metric in ("pool_slots", "pool_busy", "pool_demand"):
            assert max(m.value for m in archive.query(metric, "")) > 0
    assert report["open_reservations_at_end"] == report["flows_left_on_switches"] == 0
    assert left_of(second.place) == []
    assert machine() == before
