"""The callout, run as the planner runs it, with real mappings."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from callout_world import SERVERS, Planning

from pegasus_hooks import callout
from pegasus_hooks.callout import HEAD
from site_selector.placement import Mapping

pytestmark = pytest.mark.component
WARNING = "sleeps about 5 s for every job"


@pytest.fixture
def planning(tmp_path: Path) -> Planning:
    return Planning(tmp_path)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planning]:
    """For tests that ask several times about one workflow and change nothing."""
    yield Planning(tmp_path_factory.mktemp("planned"))


def mapped(planning: Planning, *options: str) -> dict[str, str]:
    """What ``adon site map`` says of the workflow."""
    out = planning.root / "mapping.json"
    adon = [sys.executable, "-c", "import sys; from adon.cli import main; sys.exit(main())"]
    command = [*adon, "site", "map", "workflow.yml", "--save", str(out), *options]
    subprocess.run(command, cwd=planning.case.root, check=True, capture_output=True)
    return Mapping.load(out).sites


def test_it_answers_from_a_mapping_of_the_whole_workflow_and_warns_once(planned: Planning) -> None:
    answers = planned.run("--sites", "mu,tacc", "--output-sites", "local", "workflow.yml")
    sites = dict(zip(planned.jobs, (a.site for a in answers), strict=True))
    assert sites == mapped(planned, "--execution-sites", "mu,tacc")
    assert answers[0].err.count("\n") == 1
    assert f"{WARNING} it asks about (4 jobs: 20 s)" in answers[0].err
    assert [a.err for a in answers[1:]] == ["", "", ""]


def test_later_calls_do_not_map_again(planning: Planning) -> None:
    files = planning.files()
    workflow = planning.case.root / "workflow.yml"
    # The planner read it before its first call: what becomes of it later is nothing to us.
    first = planning.run("workflow.yml", files=[files[0]])
    assert first[0].site
    [table] = planning.kept()
    text = table.read_bytes()
    assert text.startswith(HEAD)
    assert workflow.exists()
    assert callout.listed(text, b"j", b"ID4")


def test_only_offered_sites_are_answered_although_another_was_better(planning: Planning) -> None:
    only = {"tacc": SERVERS["tacc"]}
    answers = planning.run("workflow.yml", files=planning.files(only))
    assert [a.site for a in answers] == ["tacc"] * 4


def test_nothing_offered_is_answered_at_once_with_pegasus_word_for_no_site(
    planning: Planning,
) -> None:
    answers = planning.run("workflow.yml", files=planning.files({}))
    assert [a.site for a in answers] == ["NONE"] * 4


def test_catalogs_come_from_the_properties(planning: Planning) -> None:
    away = planning.root / "away"
    away.mkdir()
    for name in ("sites", "replicas", "transformations"):
        (planning.case.root / f"{name}.yml").rename(away / f"{name}.yml")
    (planning.case.root / "my.properties").write_text(
        f"base = {away}\n"
        "pegasus.catalog.site = YAML\n"
        "pegasus.catalog.site.file   ${base}/nothing.yml\n"
        f"pegasus.catalog.replica.file : {away}/replicas.yml\n"
        f"pegasus.catalog.transformation.file={away}/transfor\\\n   mations.yml\n"
    )
    system = f"-Dpegasus.catalog.site.file={away}/sites.yml"
    answers = planning.run("--conf=my.properties", "workflow.yml", java=[system])
    assert all(a.site in SERVERS for a in answers)
    assert "built-in" not in answers[0].err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.yml"], "absent.yml"),
        (["--conf", "xml.properties", "workflow.yml"], "expected YAML"),
        (["--conf", "far.properties", "workflow.yml"], "far.yml"),
    ],
)
def test_what_cannot_be_mapped_is_placed_by_the_rule_with_its_reason(
    planned: Planning, arguments: list[str], said: str
) -> None:
    (planned.case.root / "xml.properties").write_text("pegasus.catalog.site = XML\n")
    (planned.case.root / "far.properties").write_text("pegasus.catalog.site.file = /far.yml\n")
    answers = planned.run(*arguments)
    assert all(a.site in SERVERS for a in answers)
    assert answers[0].err.count("\n") == 1
    assert "placed by the built-in rule: " in answers[0].err
    assert said in answers[0].err
    assert WARNING in answers[0].err
    assert [a.err for a in answers[1:]] == ["", "", ""]


def test_the_rule_keeps_to_sites_where_a_program_is_installed(planning: Planning) -> None:
    planning.case.change(
        "transformations",
        lambda d: [e.update(sites=[s for s in e["sites"] if s["name"] == "tacc"])
                   for e in d["transformations"]],
    )  # fmt: skip
    (planning.case.root / "far.properties").write_text("pegasus.catalog.site.file = /far.yml\n")
    answers = planning.run("--conf", "far.properties", "workflow.yml")
    assert "built-in rule" in answers[0].err
    assert [a.site for a in answers] == ["tacc"] * 4
    [notes] = [path for path in planning.kept() if path.suffix == ".notes"]
    assert "/far.yml" in notes.read_text()


def test_a_mapping_that_takes_too_long_is_ended_and_the_rule_answers(planning: Planning) -> None:
    answers = planning.run("workflow.yml", env={"ADON_CALLOUT_TIMEOUT": "0.1"})
    assert all(a.site in SERVERS for a in answers)
    assert "took longer than 0.1 s" in answers[0].err
    assert [a.err for a in answers[1:]] == ["", "", ""]


def test_planners_side_by_side_keep_apart(planning: Planning, tmp_path: Path) -> None:
    other = Planning(tmp_path / "other")
    other.cache = planning.cache
    other.case.change("workflow", lambda d: d.update(name="else"))
    mine, theirs = planning.start("workflow.yml"), other.start("workflow.yml")
    ends = [p.communicate(timeout=600) for p in (mine, theirs)]
    assert [out.count("SOLUTION:") for out, _ in ends] == [4, 4]
    assert "built-in" not in ends[0][0]
    # The other planner is asked about a workflow of another name than its files hold.
    assert "found workflow 'else', asked for 'mini'" in ends[1][0]


def test_answers_of_planners_that_ended_are_removed(planning: Planning) -> None:
    planning.run("workflow.yml")
    [old] = planning.kept()
    planning.run("workflow.yml")
    [new] = planning.kept()
    assert old != new


def test_a_folder_that_somebody_else_made_is_not_used(planning: Planning) -> None:
    elsewhere = planning.root / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    (planning.cache / f"adon-callout-{os.getuid()}").symlink_to(elsewhere)
    answers = planning.run("workflow.yml", files=planning.files()[:2])
    assert all(a.site in SERVERS for a in answers)
    assert all("built-in" not in a.err for a in answers)
    assert not list(elsewhere.iterdir())


def test_nothing_is_left_running(planning: Planning) -> None:
    """The mapping is another process group: it has to be gone when the answer is there."""
    planning.run("workflow.yml", env={"ADON_CALLOUT_TIMEOUT": "0.3"})
    root = os.fsencode(str(planning.root))
    running = [
        p for p in Path("/proc").glob("[0-9]*") if root in callout.read(bytes(p / "cmdline"))
    ]
    assert not running


def test_a_killed_first_call_leaves_no_mapping_behind(planning: Planning) -> None:
    """The planner ends a callout that is too slow; its mapping must end with it."""
    fifo = planning.case.root / "slow.yml"
    os.mkfifo(fifo)
    (planning.case.root / "slow.properties").write_text(f"pegasus.catalog.site.file = {fifo}\n")
    planner = planning.start("--conf", "slow.properties", "workflow.yml")
    with fifo.open("wb"):  # opens when the mapping has opened it for reading
        found = [p for p in Path("/proc").glob("[0-9]*")
                 if os.fsencode(str(fifo)) in callout.read(bytes(p / "cmdline"))]  # fmt: skip
        [mapping] = [int(p.name) for p in found]
        ended = os.pidfd_open(mapping)
        parent = int(callout.read(b"/proc/%d/stat" % mapping).rpartition(b")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert select.select([ended], [], [], 300)[0]
        os.close(ended)
    planner.kill()
    planner.communicate()
