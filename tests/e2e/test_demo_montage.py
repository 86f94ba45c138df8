"""The demo of Montage: a mosaic that is right, made over real switches and as an ordinary user."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from demo_runs import Ran, left_of, run
from ordinary_user import as_ordinary_user, given_to_user

from adon.machine import box, packages
from adon.machine.cached import cache_root

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "examples.demo", "--example", "montage")
SMALL = (*DEMO, "--bands", "1", "--tiles", "2")


def checked(ran: Ran, network: str, jobs: int) -> None:
    """A run is right and has left nothing."""
    assert ran.code == 0, ran.output
    report = ran.report
    assert (report["network"], report["workflow"]["jobs"]) == (network, jobs)
    assert report["science"]["worst_flux_error"] <= 0.01
    assert report["science"]["largest_background_step"] <= 1
    assert ran.page.count('src="data:image/png;base64,') == 1
    assert report["open_reservations_at_end"] == report["flows_left_on_switches"] == 0
    assert {p["site"] for p in report["placements"]} <= {"fiu", "nicta"}
    assert left_of(ran.place) == []


@pytest.mark.root
def test_over_switches_data_comes_from_the_head_on_paths_of_its_own(tmp_path: Path) -> None:
    if reason := box.can_box():
        pytest.skip(reason)
    ran = run(tmp_path, DEMO)
    checked(ran, "openflow", 130)
    assert any(t["src"] == "local" and t["layer"] == "l2" for t in ran.report["transits"])


def test_as_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = given_to_user(tmp_path_factory.mktemp("montage"))
    for name in ("condor", "gridftp", "montage"):
        packages.ensure(name, progress=print)
    cache = cache_root()
    needed = [place, ROOT, Path(sys.prefix), Path(sys.base_prefix), cache]
    env_command = ["env", f"XDG_CACHE_HOME={cache.parent}"]
    checked(run(place, [*as_ordinary_user(needed), *env_command, *SMALL]), "simulated", 20)
