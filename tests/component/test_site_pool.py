"""Site selection asks a real HTCondor: slots, the jobs ahead, and what ended jobs tell."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adon.machine.packages import ensure
from condor_plugins.sitepool import SitePool, pool_from_json
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[2]
SITES = """\
pegasus: 5.0.4
sites:
- {name: mu, arch: x86_64, os.type: linux, profiles: {pegasus: {adon.queue_wait: 77 s}}}
- {name: tacc, arch: x86_64, os.type: linux, profiles: {pegasus: {adon.workers: 9}}}
- {name: gone, arch: x86_64, os.type: linux, profiles: {pegasus: {adon.workers: 9}}}
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    condor = ensure("condor", progress=print)
    sites = {"mu": SiteSpec(2), "tacc": SiteSpec(3)}
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites) as pool:
        yield pool


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalog")
    folder.parent.chmod(0o755)  # the pool's user reads it
    folder.chmod(0o755)
    (folder / "sites.yml").write_text(SITES)
    return folder / "sites.yml"


def until(condition: Callable[[], bool], what: str, timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.2)


def read(pool: Pool) -> dict[str, SitePool]:
    return pool_from_json(pool.run([sys.executable, "-m", "condor_plugins.collector"], cwd=ROOT))


def show(pool: Pool, catalog: Path, *asked: str) -> dict[str, Any]:
    words = ["site", "show", "--sites", str(catalog), "--json", *asked]
    adon = "import sys; from adon.cli import main; sys.exit(main())"
    found = json.loads(pool.run([sys.executable, "-c", adon, *words], cwd=ROOT))
    sites: dict[str, Any] = found["sites"]
    return sites


def submit(pool: Pool, folder: Path, seconds: int, count: int) -> str:
    (folder / "j.sub").write_text(
        f"executable = /bin/sleep\narguments = {seconds}\nlog = j.log\n"
        'requirements = PegasusSite == "mu"\n+pegasus_site = "mu"\n'
        f'+pegasus_wf_xformation = "t::nap:1.0"\nqueue {count}\n'
    )
    return pool.run(["condor_submit", "-terse", "j.sub"], cwd=folder).split(".")[0]


@pytest.fixture(scope="module", autouse=True)
def ended(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Four jobs, which tell more than those that run."""
    submit(pool, tmp_path_factory.mktemp("ended"), 1, 4)
    until(lambda: read(pool)["mu"].runtimes.get("t::nap:1.0", (0, 0))[1] == 4, "four ended jobs")


def test_ended_jobs_tell_how_long_they_ran_and_waited(pool: Pool, catalog: Path) -> None:
    found = read(pool)["mu"]
    assert found.run_s is not None and found.run_s >= 1
    assert found.start_s is not None and found.start_s >= 0
    assert found.runtimes["t::nap:1.0"][0] >= 1
    assert read(pool)["tacc"].runtimes == {}
    until(lambda: read(pool)["mu"].idle_slots == 2, "idle slots at mu")
    sites = show(pool, catalog, "--pool")
    assert (sites["mu"]["n"]["value"], sites["mu"]["n"]["source"]) == (2, "collector")
    # Nobody is ahead: what jobs waited that had nobody ahead, and not what the catalog fears.
    assert sites["mu"]["t_q"]["source"] == "schedd"
    assert sites["mu"]["t_q"]["value"] == found.start_s
    assert sites["tacc"]["n"]["value"] == 3
    assert (sites["gone"]["n"]["value"], sites["gone"]["t_q"]["value"]) == (0, None)


def test_the_jobs_ahead_make_the_queue(pool: Pool, catalog: Path, tmp_path: Path) -> None:
    cluster = submit(pool, tmp_path, 600, 5)
    try:
        until(lambda: read(pool)["mu"].running_jobs == 2, "both slots of mu at work")
        until(lambda: read(pool)["mu"].idle_slots == 0, "no idle slot at mu")
        found = read(pool)["mu"]
        assert found.ahead == 3
        assert found.run_s is not None
        wait = show(pool, catalog, "--pool", pool.collector)["mu"]["t_q"]
        assert wait["source"] == "schedd"
        assert "3 jobs ahead, 0 of 2 slots idle" in wait["note"]
        assert wait["value"] == pytest.approx(4 * found.run_s / 2 + (found.start_s or 0))
    finally:
        pool.run(["condor_rm", cluster])
