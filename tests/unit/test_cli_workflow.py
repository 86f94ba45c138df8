"""``adon workflow provision`` and ``adon pool``: files changed and restored, drivers called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_world import adon, refusal
from network_world import star
from provision_world import text

FAN: dict[str, list[str]] = {"split": [], **{f"w{n}": ["split"] for n in range(8)}}
GROW = """
import json, pathlib, sys
request, rows = json.load(sys.stdin), pathlib.Path(sys.argv[1])
found = json.loads(rows.read_text()) if rows.exists() else []
if request["action"] == "enlarge":
    d = request["demand"]
    found = [r for r in found if r["demand"] != d["id"]]
    found.append({"name": "vm", "demand": d["id"], "slots": d["slots"], "until": d["until"]})
    rows.write_text(json.dumps(found))
if request["action"] == "shrink":
    rows.write_text(json.dumps([r for r in found if r["demand"] != request["id"]]))
print(json.dumps({"workers": found}))
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workflow, an adon.yml whose pool a program enlarges, and the hooks' configuration."""
    (tmp_path / "w.yml").write_text(text(FAN, sizes={"split.out": 10**9}))
    (tmp_path / "grow.py").write_text(GROW)
    command = [sys.executable, "-I", str(tmp_path / "grow.py"), str(tmp_path / "rows")]
    write_config(tmp_path, {"driver": "command", "command": command})
    (tmp_path / "hooks.json").write_text('{"broker": "http://127.0.0.1:9"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_config(folder: Path, expansion: dict[str, Any] | None) -> None:
    data = {"topology": star("local", "mu")} | (
        {} if expansion is None else {"expansion": expansion}
    )
    (folder / "adon.yml").write_text(yaml.safe_dump(data))


def test_a_workflow_is_provisioned_in_place_and_restored(world: Path) -> None:
    before = (world / "w.yml").read_text()
    told = adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--hooks", "hooks.json",
                "--sites", "mu").out  # fmt: skip
    assert told.splitlines() == [
        "level 1: 8 jobs, provisioned after split",
        "  8 slots of 1 core",
        "  local to mu: 1 GB",
        "written to w.yml",
    ]
    after = (world / "w.yml").read_text()
    assert after != before
    adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--hooks", "hooks.json",
         "--sites", "mu")  # fmt: skip
    assert (world / "w.yml").read_text() == after
    assert adon("workflow", "provision", "w.yml", "--undo").out == "w.yml: as it was before\n"
    assert (world / "w.yml").read_text() == before
    assert adon("workflow", "provision", "w.yml", "--undo").out == "nothing to take out\n"


def test_another_file_may_be_written_or_none(world: Path) -> None:
    before = (world / "w.yml").read_text()
    words = ("workflow", "provision", "w.yml", "--config", "adon.yml")
    assert "written to" not in adon(*words, "--dry-run").out
    assert "written to out.yml" in adon(*words, "-o", "out.yml").out
    assert (world / "w.yml").read_text() == before
    adon("workflow", "provision", "out.yml", "--undo")
    assert (world / "out.yml").read_text() == before


def test_it_is_told_as_json(world: Path) -> None:
    found = json.loads(
        adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--json", "--dry-run").out
    )
    assert found["output"] == ""
    (step,) = found["steps"]
    assert (step["levels"], step["slots"], step["after"]) == ([1, 1], 8, ["split"])


def test_a_narrow_workflow_stays_as_it_is(world: Path) -> None:
    before = (world / "w.yml").read_text()
    told = adon("workflow", "provision", "w.yml", "--config", "adon.yml", "--min-width", "9").out
    assert told == "no level has 9 jobs or more: nothing to provision\n"
    assert (world / "w.yml").read_text() == before


def test_without_sites_it_says_why_no_path_is_asked_for(world: Path) -> None:
    told = adon("workflow", "provision", "w.yml", "--hooks", "hooks.json", "--dry-run").out
    assert "no path is asked for where files and jobs are at one site; --sites" in told


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


def test_a_pool_grows_is_shown_and_shrinks(world: Path) -> None:
    told = adon("pool", "enlarge", "--for", "night", "--slots", "4", "--lease", "2 h").out
    assert told == "night: 4 slots in 1 worker joined the pool or are on their way, for 2 h 0 min\n"
    shown = adon("pool", "show").out.splitlines()
    assert shown[0].split() == ["worker", "state", "slots", "lease", "for"]
    assert shown[1].split()[:3] == ["vm", "running", "4"]
    (row,) = json.loads(adon("pool", "show", "--json").out)["workers"]
    assert (row["demand"], row["slots"]) == ("night", 4)
    adon("pool", "shrink", "--for", "night")
    assert adon("pool", "show").out == "no workers joined the pool\n"


def test_what_a_pool_cannot_do_is_one_line(world: Path) -> None:
    said = refusal("pool", "enlarge", "--for", "a b", "--slots", "1")
    assert said == "demand: found id 'a b', expected letters, digits and any of _.:@+-"
    said = refusal("pool", "enlarge", "--for", "a", "--slots", "1", "--lease", "0")
    assert said == "--lease: found '0 s', expected more than 0"
    write_config(world, {"driver": "startd"})
    assert "found no pool.collector" in refusal("pool", "show")
    write_config(world, None)
    assert "found no section 'expansion'" in refusal("pool", "show")
    write_config(world, {"driver": "command"})
    assert "found no command, expected a program to call" in refusal("pool", "show")
    write_config(world, {"idel": "1 h"})
    assert "expansion has the unknown key 'idel', did you mean 'idle'?" in refusal("pool", "show")
