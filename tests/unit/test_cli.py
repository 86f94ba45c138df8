"""The command line as users meet it: help, tables, JSON, exit codes."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from api_rig import application, serving
from broker_rig import Rig
from cli_world import REPLICAS, SITES, adon, changed, config_file, write_world
from made_transit import made_transit
from test_docs import leaves

from adon.cli import doctor
from adon.cli.main import NOUNS, build_parser
from monitors.archive.archive import Archive
from network_provisioner.base.model import TransitState
from network_provisioner.stores.sqlite import SqliteStore

COMMANDS = {tuple(leaf.prog.split()[1:]) for leaf in leaves(build_parser())}
MOST_IMPORTED = {"yaml", "pydantic", "networkx", "numpy", "sqlite3", "http", "htcondor2", "uuid"}


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    return write_world(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A broker on loopback whose address is in ADON_BROKER; its clock stands still."""
    rig = Rig(tmp_path / "state.sqlite")
    with serving(application(rig)) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        yield rig


# ---- help -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted({(), *((noun,) for noun in NOUNS), *COMMANDS}))
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    ran = adon(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert " ".join(("usage: adon", *command)) in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


def test_every_option_has_help() -> None:
    def silent(parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield from silent(inner)
            elif not action.help:
                yield f"{parser.prog} {action.dest}"

    assert not list(silent(build_parser()))


def value_of(kind: Callable[[str], object] | None) -> str:
    """The type that an argument's text becomes."""
    if kind is None or isinstance(kind, type):
        return (kind or str).__name__
    return str(inspect.signature(kind).return_annotation)


def test_an_option_name_has_one_meaning() -> None:
    """The same kind of value under the same name, in each command that has the option."""
    meanings: dict[str, dict[object, list[str]]] = {}
    for leaf in leaves(build_parser()):
        for action in leaf._actions:
            meaning = (type(action), action.metavar, action.dest, value_of(action.type))
            for name in action.option_strings:
                meanings.setdefault(name, {}).setdefault(meaning, []).append(leaf.prog)
    assert len(meanings) > 100
    assert {name: uses for name, uses in meanings.items() if len(uses) > 1} == {}


def test_help_and_refusals_import_no_library() -> None:
    """What makes `adon --help` quick: nothing large is imported before a command runs."""
    code = (
        "import sys; from adon.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    for words in (["--help"], ["nonsense"], ["transit", "request", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
        )
        assert not MOST_IMPORTED & set(done.stderr.splitlines()[-1].split())


def test_a_command_imports_no_other() -> None:
    code = (
        "import sys; from adon.cli.main import main\n"
        "try: main(['--debug', 'transit', 'list', '--help'])\n"
        "except SystemExit: pass\n"
        "print(*(m for m in sys.modules if m.startswith('adon.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = done.stdout.splitlines()[-1].split()
    assert {*names} == {
        f"adon.cli.{n}"
        for n in ("live", "main", "options", "output", "parsing", "terminal", "transit")
    }


def test_version() -> None:
    ran = adon("--version")
    assert ran.code == 0 and re.fullmatch(r"adon \d+\.\d+\.\d+\n", ran.out)


# ---- site and plan ----------------------------------------------------------------------------


def test_site_map_prints_and_saves(workflow: Path, tmp_path: Path) -> None:
    saved, hinted = tmp_path / "m.json", tmp_path / "h.yml"
    ran = adon("site", "map", workflow, "--save", saved, "--hints", hinted)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("small: 2 jobs, 2 at mu\nexpected to end after ")
    assert ran.out.endswith(
        "job  transformation  site\nID1  align           mu\nID2  call            mu\n"
    )
    first = yaml.safe_load(hinted.read_text())["jobs"][0]
    assert first["profiles"]["selector"]["execution.site"] == "mu"
    as_json = json.loads(adon("site", "map", workflow, "--json").out)
    before = json.loads(saved.read_text())
    del as_json["beliefs"], before["beliefs"]  # they carry the time
    assert as_json == before


def test_site_explain_and_show(workflow: Path) -> None:
    ran = adon("site", "explain", workflow, "--job", "ID2")
    assert (
        ran.code == 0 and ran.out.startswith("ID2  call -> mu, sharedfs\n") and "ID1" not in ran.out
    )
    placements = json.loads(adon("site", "explain", workflow, "--job", "ID2", "--json").out)
    assert [p["job"] for p in placements] == ["ID2"]
    assert {a["site"] for a in placements[0]["alternatives"]} == {"mu", "tacc"}
    ran = adon("site", "show", workflow)
    assert ran.code == 0 and ["mu", "N", "4", "catalog"] in map(str.split, ran.out.splitlines())
    assert (
        json.loads(adon("site", "show", workflow, "--json").out)["sites"]["mu"]["n"]["value"] == 4
    )


def test_plan_says_who_planned_and_where(workflow: Path, tmp_path: Path) -> None:
    hooks = tmp_path / "hooks.json"
    hooks.write_text('{"broker": "http://127.0.0.1:8470"}')
    ran = adon("plan", workflow, "--dir", tmp_path / "s", "--hooks", hooks)
    assert (ran.code, ran.err) == (0, "")
    assert "embedded planner" in ran.out and "without hooks" not in ran.out
    submit_dir = Path(ran.out.splitlines()[-1])
    assert f"adon monitor run {submit_dir}" in ran.out
    assert (submit_dir / "braindump.yml").exists()
    assert "SCRIPT PRE" in (submit_dir / "small-0.dag").read_text()
    ran = adon("plan", workflow, "--dir", tmp_path / "s", "--hooks", hooks, "--defer", "30")
    submit_dir = Path(ran.out.splitlines()[-1])
    assert "SCRIPT DEFER 4 30 PRE " in (submit_dir / "small-0.dag").read_text()


def test_plan_follows_a_saved_mapping(workflow: Path, tmp_path: Path) -> None:
    saved = tmp_path / "m.json"
    adon("site", "map", workflow, "--save", saved, "--output-site", "tacc")
    mapping = json.loads(saved.read_text())
    mapping["placements"][1]["site"] = "tacc"
    saved.write_text(json.dumps(mapping))
    ran = adon("plan", workflow, "--mapping", saved, "--dir", tmp_path / "s", "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert report["planner"] == "embedded" and report["hooks"] is None
    submit = (Path(report["submit_dir"]) / "00/00/call_ID2.sub").read_text()
    assert '+pegasus_site = "tacc"' in submit
    # Results go where the mapping was made for.
    assert list(Path(report["submit_dir"]).glob("00/00/stage_out_*_tacc_*.in"))


@pytest.mark.parametrize(("fast", "slow"), [("local", "tacc"), ("tacc", "local")])
def test_plan_takes_the_replica_first_that_arrives_soonest(
    tmp_path: Path, fast: str, slow: str
) -> None:
    places = [{"site": site, "pfn": f"http://{site}/reads"} for site in ("tacc", "local")]
    hints = {f"adon.bandwidth.{fast}": "1 Gb/s", f"adon.bandwidth.{slow}": "10 Mb/s"}
    workflow = write_world(
        tmp_path,
        sites=changed(SITES, "sites", 1, "profiles", "pegasus", to=hints),
        replicas=changed(REPLICAS, "replicas", 0, "pfns", to=places),
    )
    only_mu = ("--execution-sites", "mu", "--dir", tmp_path / "s", "--json")
    adon("site", "map", workflow, "--save", tmp_path / "m.json", "--execution-sites", "mu")
    for how in ((), ("--mapping", tmp_path / "m.json")):
        submit_dir = json.loads(adon("plan", workflow, *only_mu, *how).out)["submit_dir"]
        (file,) = Path(submit_dir).glob("00/00/stage_in_local_mu_*.in")
        (entry,) = json.loads(file.read_text())
        assert [url["site_label"] for url in entry["src_urls"]] == [fast, slow]


def test_plan_without_hooks_says_so(workflow: Path, tmp_path: Path) -> None:
    assert "without hooks" in adon("plan", workflow, "--dir", tmp_path / "s").out


# ---- broker, transit, topology ----------------------------------------------------------------


def test_the_life_of_a_transit(broker: Rig) -> None:
    assert adon("transit", "list").out == "no transit holds bandwidth or waits\n"
    assert adon("transit", "list", "--all").out == "no transits\n"
    ran = adon(
        "transit", "request", "mu", "tacc", "--size", "25 GB", "--min", "70 Mb/s", "--id", "a"
    )
    assert (ran.code, ran.err) == (0, "")
    head, row, reason = ran.out.splitlines()
    assert head.split() == [
        "state", "from", "to", "size", "granted", "goodput", "lease", "path", "for", "job", "id",
    ]  # fmt: skip
    assert row.split() == [
        "installed", "mu", "tacc", "25", "GB", "180", "Mb/s", "-", *row.split()[8:10],
        "mu-s1-s2-tacc", "(l2)", "-", "-", "a",
    ]  # fmt: skip
    assert "highest score" in reason
    assert adon("transit", "list").out.splitlines()[1].split()[-1] == "a"
    ran = adon("transit", "explain", "a")
    assert ran.code == 0 and "\nQ 6.33  mu-s1-s2-tacc (l2), 180 Mb/s free\n" in ran.out
    assert "left out: 18 Mb/s free, 70 Mb/s needed" in ran.out
    assert "throughput  180 Mb/s  reservations   8.62    0.70" in ran.out
    ran = adon("transit", "release", "a")
    assert ran.code == 0 and ran.out.splitlines()[1].startswith("released")
    assert adon("transit", "release", "a").out == ran.out
    assert adon("transit", "list").out == "no transit holds bandwidth or waits\n"


def test_a_transit_without_a_path_exits_1_and_says_why(broker: Rig) -> None:
    ran = adon("transit", "request", "mu", "mu", "--id", "same")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.splitlines()[1].split()[0] == "best_effort"
    assert "same: both ends are mu" in adon("transit", "list", "--all").out


# ---- doctor -----------------------------------------------------------------------------------


def test_doctor_tells_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    ran = adon("doctor")
    assert (ran.code, ran.err) == (1, "")
    assert "MISSING  apt-get" in ran.out and "condor_master" in ran.out
    assert "without  pegasus-plan: not on PATH" in ran.out
    assert "without  real network" in ran.out
    # What is said of an ordinary user comes first.
    assert "iproute2" in ran.out or "need root" in ran.out
    report = json.loads(adon("doctor", "--json").out)
    assert report["healthy"] is False
    assert {f["what"] for f in report["findings"] if not f["ok"] and f["needed"]} == {
        "apt-get (private copies of HTCondor, GridFTP and tools)",
        "setpriv",
    }
    # A broker needs nothing of the examples.
    assert "MISSING" not in adon("doctor", "--config", config_file(tmp_path)).out


def test_doctor_says_which_files_are_used_and_which_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    Archive("a.sqlite").close()
    out = adon("doctor", "--config", config_file(tmp_path)).out
    assert f"{tmp_path / 's.sqlite'} can be written" in out
    assert f"{tmp_path / 'a.sqlite'} can be written" in out
    assert f"warning: {elsewhere / 'a.sqlite'} is not used, {tmp_path / 'a.sqlite'} is" in out


def test_doctor_names_what_is_wrong_in_the_configuration(tmp_path: Path) -> None:
    file = config_file(tmp_path, limits={"reservible": 0.8})
    out = adon("doctor", "--config", file).out
    assert f"MISSING  the configuration: {file}: limits has the unknown key 'reservible'" in out
    assert "broker.state" not in out and "broker.archive" not in out


def test_doctor_reads_the_state_and_writes_it(tmp_path: Path) -> None:
    file, state = config_file(tmp_path), tmp_path / "s.sqlite"
    with closing(SqliteStore(state)) as store:
        store.put(made_transit("row-1", "mu", "tacc", TransitState.RELEASED))
    os.utime(state, (0, 0))
    assert f"ok       the broker's state in {file}" in adon("doctor", "--config", file).out
    assert state.stat().st_mtime > 0  # it was written
    state.write_bytes(state.read_bytes().replace(b'"src"', b'"s\xffc"'))
    ran = adon("doctor", "--config", file)
    assert f"{state}: transit row-1 cannot be read" in ran.out
    ran = adon("state", "show", state)
    assert (ran.code, ran.out.splitlines()[-1].partition(":")[0]) == (
        1, "transit row-1 cannot be read",
    )  # fmt: skip


def test_doctor_is_content_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    good = doctor.CheckResult("everything", "there", True)
    lacking = doctor.CheckResult("a luxury", "not there", False, needed=False, advice="do without")
    monkeypatch.setattr(doctor, "findings", lambda _: iter([good, lacking]))
    ran = adon("doctor")
    assert ran.code == 0
    assert "without  a luxury: not there  (do without)" in ran.out
