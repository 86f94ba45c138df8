"""The demo as an ordinary user: the same line without namespaces, and nothing stays behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from demo_runs import SMALL, demo, left_of, run
from ordinary_user import as_ordinary_user, given_to_user

from adon.machine import packages
from adon.machine.cached import cache_root

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return given_to_user(tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def command(place: Path) -> list[str]:
    """The small demo as an ordinary user, who finds the packages there and can write none."""
    for name in ("condor", "gridftp", "bio"):
        packages.ensure(name, progress=print)
    cache = cache_root()
    needed = [place, ROOT, Path(sys.prefix), Path(sys.base_prefix), cache]
    env_command = ["env", f"XDG_CACHE_HOME={cache.parent}"]
    return [*as_ordinary_user(needed), *env_command, *SMALL]


@pytest.mark.long
@pytest.mark.parametrize("words", ["jobs over", "globus-url-copy", "alignment_to_reference"])
def test_nothing_is_left_of_a_killed_run(place: Path, command: list[str], words: str) -> None:
    with demo(place, command) as demo_run:
        demo_run.until(lambda: words in demo_run.output or demo_run.find(words), words)
        demo_run.stop()
        assert left_of(place) == []


@pytest.mark.long
def test_the_next_run_works_while_a_killed_one_is_still_ending(
    place: Path, command: list[str]
) -> None:
    with demo(place, command) as demo_run:
        demo_run.runs("condor_schedd")
        demo_run.stop()
    assert run(place, command).code == 0
    assert left_of(place) == []


def test_it_works_and_says_what_is_simulated(place: Path, command: list[str]) -> None:
    ran = run(place, command)
    assert ran.code == 0, ran.output
    report = ran.report
    assert (report["network"], report["workflow"]["state"]) == ("simulated", "success")
    assert report["status_records"] > report["workflow"]["jobs"]
    assert report["open_reservations_at_end"] == report["flows_left_on_switches"] == 0
    assert any(t["path"] and t["bytes"] > 0 for t in report["transits"])
    assert ran.output.count("The network is simulated: ") == 1
    assert left_of(place) == []
