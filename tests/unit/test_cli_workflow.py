"""``adon workflow provision`` and ``adon pool``: files changed and restored, leases recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_world import NOBODY, adon, refusal
from network_world import star
from provision_world import text

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement

FAN: dict[str, list[str]] = {"split": [], **{f"w{n}": ["split"] for n in range(8)}}
GROW = """
import json, sys
row = {"name": "adon-1", "flavour": "small", "state": "running", "since": 9}
print(json.dumps({"machines": [row]} if json.load(sys.stdin)["action"] == "machines" else {}))
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workflow, an adon.yml for whose pool a program has a machine, and the hooks'
    configuration."""
    (tmp_path / "w.yml").write_text(text(FAN, sizes={"split.out": 10**9}))
    (tmp_path / "grow.py").write_text(GROW)
    command = [sys.executable, "-I", "-S", str(tmp_path / "grow.py")]
    write_config(tmp_path, {"driver": "command", "command": command})
    (tmp_path / "hooks.json").write_text('{"broker": "http://127.0.0.1:9"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_config(folder: Path, expansion: dict[str, Any] | None) -> None:
    data = {"topology": star("local", "mu"), "broker": {"listen": NOBODY}} | (
        {} if expansion is None else {"expansion": expansion}
    )
    (folder / "adon.yml").write_text(yaml.safe_dump(data))


def test_a_workflow_is_provisioned_in_place_and_restored(world: Path) -> None:
    before = (world / "w.yml").read_text()
    output = adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--hooks", "hooks.json",
                "--execution-sites", "mu").out  # fmt: skip
    assert output.splitlines() == [
        "level 1: 8 jobs, provisioned after split",
        "  8 slots of 1 core",
        "  local to mu: 1 GB",
        "written to w.yml",
    ]
    after = (world / "w.yml").read_text()
    assert after != before
    adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--hooks", "hooks.json",
         "--execution-sites", "mu")  # fmt: skip
    assert (world / "w.yml").read_text() == after
    assert adon("workflow", "provision", "w.yml", "--undo").out == "w.yml: as it was before\n"
    assert (world / "w.yml").read_text() == before
    assert adon("workflow", "provision", "w.yml", "--undo").out == "nothing to remove\n"


def test_another_file_may_be_written_or_none(world: Path) -> None:
    before = (world / "w.yml").read_text()
    words = ("workflow", "provision", "w.yml", "--config", "adon.yml")
    assert "written to" not in adon(*words, "--dry-run").out
    assert "written to out.yml" in adon(*words, "-o", "out.yml").out
    assert (world / "w.yml").read_text() == before
    adon("workflow", "provision", "out.yml", "--undo")
    assert (world / "out.yml").read_text() == before


def test_it_is_told_as_json(world: Path) -> None:
    result = json.loads(
        adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--json", "--dry-run").out
    )
    assert result["output"] == ""
    (step,) = result["steps"]
    assert (step["levels"], step["slots"], step["after"]) == ([1, 1], 8, ["split"])


def test_a_narrow_workflow_stays_as_it_is(world: Path) -> None:
    before = (world / "w.yml").read_text()
    output = adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--min-width", "9").out
    assert output == "no level has 9 jobs or more: nothing to provision\n"
    assert (world / "w.yml").read_text() == before


def test_without_sites_it_says_why_no_path_is_asked_for(world: Path) -> None:
    output = adon("workflow", "provision", "w.yml", "--hooks", "hooks.json", "--dry-run").out
    assert "files and jobs are at one site, so no path is reserved; see" in output


def test_what_cannot_be_provisioned_is_one_line(world: Path) -> None:
    said = refusal("workflow", "provision", "w.yml")
    assert "found neither --config nor --hooks" in said
    write_config(world, None)
    said = refusal("workflow", "provision", "w.yml", "--config", "adon.yml")
    assert "found no section 'expansion'" in said
    said = refusal("workflow", "provision", "w.yml", "--hooks", "hooks.json", "--lease", "soon")
    assert "--lease: found 'soon'" in said
    (world / "w.yml").write_text(json.dumps(yaml.safe_load(text(FAN))))
    said = refusal("workflow", "provision", "w.yml", "--hooks", "hooks.json")
    assert "expected YAML as Pegasus writes it" in said


def test_room_in_the_pool_is_recorded_shown_and_let_go(world: Path) -> None:
    words = ("pool", "enlarge", "night", "--slots", "4", "--lease", "2 h")
    where = world / "adon-archive.sqlite"
    assert adon(*words).out == f"night: 4 slots leased for 2 h 0 min, recorded in {where}\n"
    with Archive(where, read_only=True) as archive:
        (measurement,) = archive.query("expansion", "night")
    assert (measurement.value, measurement.details["reason"]) == (4.0, "4 jobs are to run at once")
    machine, lease = (part.split() for part in adon("pool", "show").out.splitlines()[1::2])
    assert (machine[:3], lease[:2]) == (["adon-1", "small", "running"], ["night", "4"])
    why = {"adon-1": "the last 4 jobs died there"}
    drained = {"drain": ["adon-1"], "why": why}
    with Archive(where) as archive:
        archive.record(Measurement("d", "pool_decision", "adon", 1.0, "1", 5.0, "", "", drained))
    assert "drains: the last 4 jobs died there" in " ".join(adon("pool", "show").out.split())
    with Archive(where) as archive:
        details = {"keep": ["adon-1"], "why": {"adon-1": "of use again"}}
        archive.record(Measurement("e", "pool_decision", "adon", 1.0, "1", 6.0, "", "", details))
    (worker,) = json.loads(adon("pool", "show", "--json").out)["machines"]
    assert worker["note"] == ""
    (row,) = json.loads(adon("pool", "show", "--json").out)["leases"]
    assert (row["name"], row["slots"], row["cores"]) == ("night", 4, 1)
    (world / "adon-workers").mkdir()
    (world / "adon-workers/lock").touch()
    rows = adon("pool", "shrink", "night").out.splitlines()
    assert rows[0] == f"night: ended, recorded in {where}"
    assert rows[1:] == ["no 'adon pool run' is at work on this machine"]
    pool = json.loads(adon("pool", "show", "--json").out)
    assert (len(pool["machines"]), pool["leases"]) == (1, [])


def test_room_that_cannot_be_recorded_is_a_failure(world: Path) -> None:
    (world / "adon-archive.sqlite").mkdir()
    ran = adon("pool", "shrink", "night")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith("adon: not recorded: ")


def test_what_a_pool_cannot_do_is_one_line(world: Path) -> None:
    said = refusal("pool", "enlarge", "a b", "--slots", "1")
    assert said == "lease: found name 'a b', expected letters, digits and any of _.:@+-"
    said = refusal("pool", "enlarge", "a", "--slots", "1", "--lease", "0")
    assert said == "--lease: found '0', expected more than 0"
    write_config(world, {"driver": "startd", "flavours": {"small": {"cores": 1}}})
    assert "found no pool.collector" in refusal("pool", "show")
    write_config(world, None)
    assert "found no section 'expansion'" in refusal("pool", "shrink", "a")
