"""``adon install pegasus``, with a planner of our own to verify with."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from install_world import FakePegasus, jar, make_pegasus

from adon.cli import doctor, install
from adon.cli.main import main
from adon.planning import jar as planner_jar
from network_provisioner.client import hookconfig
from site_selector.catalogs import properties

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pegasus(tmp_path: Path) -> FakePegasus:
    return make_pegasus(tmp_path / "p", b"a=b\n")


@pytest.fixture
def run(
    pegasus: FakePegasus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:  # fmt: skip
    """Runs ``adon install pegasus`` and gives code, output and errors."""
    ours = tmp_path / "built.jar"
    ours.write_bytes(jar())
    monkeypatch.setattr(install, "_warm", lambda: None)  # takes a minute without a cache
    monkeypatch.setattr(planner_jar, "planner_jar", lambda *, progress: ours)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    (tmp_path / "user").mkdir()

    def command(*options: str, home: Path | None = pegasus.root) -> tuple[int, str, str]:
        where = ["--home", str(home)] if home else []
        try:
            code = main(["install", "pegasus", *where, *options])
        except SystemExit as error:
            code = int(error.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return command


class Terminal(io.StringIO):
    """Standard input with a person at it."""

    def isatty(self) -> bool:
        return True


def test_it_shows_installs_verifies_and_undoes(run: Run, pegasus: FakePegasus) -> None:
    before = pegasus.tree()
    code, out, err = run("--yes")
    assert (code, err) == (0, "")
    assert f"+++ {pegasus.jar}\n# ADON's planner plug-in, " in out
    assert f"--- {pegasus.properties}\n+++ {pegasus.properties}\n@@ " in out
    assert "\n+pegasus.selector.site = org.adon.pegasus.AdonSiteSelector\n" in out
    assert "\nverified: ADON answered: " in out
    assert "mapped in 0.1 s (adon-b 2) by heft" in out
    assert "; PRE and POST around its 1 transfer jobs\n" in out
    assert run("--yes")[:2] == (
        0, f"nothing to do: ADON is installed as asked, in {pegasus.properties}\n"
    )  # fmt: skip
    code, out, _ = run("--undo", "--yes")
    assert code == 0
    taken = [pegasus.properties, pegasus.jar, *pegasus.hooks]
    assert out.splitlines()[-1] == f"taken out: {', '.join(map(str, taken))}"
    assert pegasus.tree() == before
    assert run("--undo", "--yes")[1].startswith("nothing to do")


def test_a_dry_run_changes_nothing(run: Run, pegasus: FakePegasus) -> None:
    before = pegasus.tree()
    code, out, _ = run("--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "dry run: nothing was changed")
    assert "+pegasus.selector.site" in out
    assert pegasus.tree() == before


def test_undo_says_what_it_leaves(run: Run, pegasus: FakePegasus) -> None:
    pegasus.jar.write_bytes(b"somebody's")
    assert run("--undo", "--yes")[1].splitlines() == [
        f"left: {pegasus.jar}: found a file that is not ADON's",
        f"nothing to do: no ADON in {pegasus.properties}",
    ]
    assert pegasus.jar.read_bytes() == b"somebody's"


def test_before_6_a_user_is_told_what_works(run: Run, pegasus: FakePegasus, tmp_path: Path) -> None:
    pegasus.mood("old")
    code, out, _ = run("--me", "--only", "hooks", "--yes")
    assert code == 1
    assert (
        "not accepted: the planner planned, but PRE of stage_in_1 is not ADON's; before 5.1.3 "
        in out
    )
    assert "--me --only selector, and the hooks into that file by --properties FILE" in out
    file = tmp_path / "my.properties"
    file.write_text("a = b\n")
    code, out, _ = run("--properties", str(file), "--yes")
    assert (code, "\nverified: PRE and POST around its 1 transfer jobs\n" in out) == (0, True)
    assert properties.parse(file.read_text())["dagman.pre"] == f"{tmp_path}/my.adon/adon-pre"
    assert run("--properties", str(file), "--yes")[1].startswith("nothing to do")
    assert run("--properties", str(file), "--undo", "--yes", home=None)[0] == 0
    assert (file.read_text(), (tmp_path / "my.adon").exists()) == ("a = b\n", False)


def test_doctor_sees_a_jar_that_stops_planning(
    run: Run, pegasus: FakePegasus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(pegasus.root / "bin"), prepend=os.pathsep)
    monkeypatch.delenv("CLASSPATH", raising=False)
    monkeypatch.delenv("_PEGASUS__SELECTOR__SITE", raising=False)
    assert list(doctor.plug_in()) == []
    assert run("--yes")[0] == 0
    assert [check.ok for check in doctor.plug_in()] == [True]
    pegasus.jar.write_bytes(pegasus.jar.read_bytes()[:-9])
    [check] = doctor.plug_in()
    assert (check.ok, check.needed) == (False, True)
    assert check.what == f"the planner plug-in that {pegasus.properties} names"
    assert check.found == f"no intact {pegasus.jar}: pegasus-plan cannot run"
    assert run("--yes")[0] == 0
    assert [check.ok for check in doctor.plug_in()] == [True]


def test_nobody_to_ask_is_said(run: Run, pegasus: FakePegasus) -> None:
    before = pegasus.tree()
    for options in ([], ["--undo"]):
        code, _, err = run(*options)
        if code:
            assert (code, err) == (
                2, "adon: standard input is not a terminal, expected --yes or --dry-run\n"
            )  # fmt: skip
    assert pegasus.tree() == before


@pytest.mark.parametrize(("reply", "code"), [("y\n", 0), ("\n", 1), ("no\n", 1), ("", 1)])
def test_a_person_is_asked(
    run: Run, pegasus: FakePegasus, monkeypatch: pytest.MonkeyPatch, reply: str, code: int
) -> None:
    before = pegasus.tree()
    monkeypatch.setattr(sys, "stdin", Terminal(reply))
    exit_code, out, _ = run()
    assert exit_code == code
    assert "Change these files? [y/N] " in out
    assert (pegasus.tree() == before) == bool(code)


@pytest.mark.parametrize(
    ("mood", "said"),
    [
        ("sad", "not accepted: ADON did not answer: ADON: 2 jobs of x mapped in 1 s (a 2) by the "),
        ("deaf", "not accepted: the planner planned, but did not ask ADON"),
        ("fragile", "not accepted: the planner stopped: Class not found"),
    ],
)
def test_what_does_not_work_is_taken_back(
    run: Run, pegasus: FakePegasus, mood: str, said: str
) -> None:
    pegasus.mood(mood)
    before = pegasus.tree()
    code, out, _ = run("--yes")
    assert code == 1
    assert said in out
    assert out.splitlines()[-1] == "undone: all files are as they were"
    assert pegasus.tree() == before


def test_a_planner_that_cannot_plan_at_all_proves_nothing(run: Run, pegasus: FakePegasus) -> None:
    pegasus.mood("broken")
    code, out, _ = run("--yes")
    assert code == 0
    assert (
        "\nnot verified: with or without ADON this planner cannot plan here: No HTCondor here\n"
    ) in out
    assert pegasus.jar.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--timeout", "0"], "expected seconds above 0"),
        (["--timeout", "x"], "expected seconds above 0"),
        (["--config", "absent.yml"], "absent.yml"),
    ],
)
def test_options_that_cannot_be_are_one_line(
    run: Run, pegasus: FakePegasus, options: list[str], said: str
) -> None:
    before = pegasus.tree()
    code, _, err = run("--yes", *options)
    assert code == 2
    assert err.count("\n") == 1
    assert said in err
    assert pegasus.tree() == before


def test_no_pegasus_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--yes", home=tmp_path / "nowhere")[::2] == (
        2,
        f"adon: {tmp_path}/nowhere: found no such folder, expected a Pegasus installation\n",
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = run("--yes", home=None)
    assert (code, err.count("\n")) == (2, 1)
    assert "expected --home" in err


def test_one_user_without_a_pegasus(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/zsh")
    code, out, _ = run("--me", "--only", "selector", "--yes", home=None)
    start = tmp_path / "user" / ".zshenv"
    assert code == 0
    assert out.splitlines()[-2:] == [
        "not verified: no pegasus-plan on PATH",
        f"from the next shell on; in this one: . {start}",
    ]
    monkeypatch.setenv("SHELL", "/bin/bash")
    code, out, _ = run("--me", "--undo", "--yes", home=None)
    assert code == 0
    assert not start.exists()


def test_what_wins_over_an_installation_for_all_is_noted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "user" / ".pegasusrc").write_text("\npegasus.selector.site = Heft\n")
    code, out, _ = run("--yes")
    assert code == 0
    assert (
        f"note: {tmp_path}/user/.pegasusrc:2: found pegasus.selector.site = Heft, which wins for "
        "you\n"
    ) in out


def settings_of(file: Path) -> set[str]:
    return set(properties.parse(file.read_text()))


def test_one_part_alone(run: Run, pegasus: FakePegasus) -> None:
    before = pegasus.tree()
    code, out, _ = run("--only", "hooks", "--yes")
    assert code == 0
    assert "\nverified: PRE and POST around its 1 transfer jobs\n" in out
    assert "dagman.pre" in settings_of(pegasus.properties) and not pegasus.jar.exists()
    assert run("--only", "selector", "--yes")[0] == 0
    assert {"dagman.pre", "pegasus.selector.site"} <= settings_of(pegasus.properties)
    assert run("--yes")[1].startswith("nothing to do")
    assert run("--only", "hooks", "--undo", "--yes")[0] == 0
    assert "dagman.pre" not in settings_of(pegasus.properties) and pegasus.jar.exists()
    assert run("--undo", "--yes")[0] == 0
    assert pegasus.tree() == before


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"broker": "http://127.0.0.1:8470"}),
        (["--broker", "http://b:1"], {"broker": "http://b:1"}),
        (["--config", "adon.yml"], {"broker": "https://10.0.0.1:9000", "archive": "/arc.sqlite"}),
        (["--config", "adon.yml", "--broker", "http://b:1"], {"broker": "http://b:1"}),
        (["--token-file", "~/t", "--ahead"], {"token_file": "~/t", "ahead": True}),
    ],
)
def test_the_hooks_are_told_whom_to_ask(
    run: Run, pegasus: FakePegasus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: list[str], expected: dict[str, object],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(install, "notes", lambda _args: iter(()))
    site = {"name": "a", "kind": "site", "address": "10.0.0.1"}
    config = {
        "topology": {"nodes": [site], "links": []},
        "broker": {"listen": "10.0.0.1:9000", "archive": "/arc.sqlite"},
        "security": {"tls": {"certificate": "c", "key": "k"}},
    }
    Path("adon.yml").write_text(json.dumps(config))
    code, _, err = run("--only", "hooks", "--yes", *options)
    assert (code, err) == (0, "")
    settings = json.loads(pegasus.hooks[2].read_text())
    assert settings.items() >= expected.items()
    assert hookconfig.load(pegasus.hooks[2]).watch == "~/.local/state/adon/watch"


def test_a_broker_that_is_away_is_noted(run: Run) -> None:
    code, out, _ = run("--only", "hooks", "--yes", "--broker", "http://127.0.0.1:9")
    assert code == 0
    assert "note: the broker at http://127.0.0.1:9 cannot be reached" in out
    assert "; until that changes transfers go without a path\n" in out


def test_a_post_that_runs_instead_is_noted(run: Run, pegasus: FakePegasus, tmp_path: Path) -> None:
    (tmp_path / "user" / ".pegasusrc").write_text("dagman.post = mine\ndagman.pre = /mine\n")
    code, out, _ = run("--only", "hooks", "--yes")
    assert code == 0
    rc = f"{tmp_path}/user/.pegasusrc"
    assert f"note: {rc}:2: found dagman.pre = /mine, which wins for you\n" in out
    assert f"note: {rc}:1: found dagman.post = mine, which runs instead of pegasus-exit" in out


@pytest.mark.parametrize("what", ["absent", "exit 3", "echo trouble >&2"])
def test_hooks_that_do_not_run_are_taken_back(
    run: Run, pegasus: FakePegasus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    python = tmp_path / "python"
    if what != "absent":
        python.write_text(f"#!/bin/sh\n{what}\n")
        python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    before = pegasus.tree()
    code, out, _ = run("--only", "hooks", "--yes")
    assert code == (0 if what == "exit 3" else 1)  # whose failure the script keeps to itself
    if code:
        assert "not accepted: " in out and "adon-pre does not run: " in out
        assert pegasus.tree() == before


@pytest.mark.parametrize("catalog", [False, True])
def test_a_check_of_jobs_that_takes_other_arguments_is_not_installed_around(
    run: Run, pegasus: FakePegasus, tmp_path: Path, catalog: bool
) -> None:
    exitcode = pegasus.root / "bin" / "pegasus-exitcode"
    exitcode.write_text('#!/bin/sh\necho "no such option: $1" >&2\nexit 2\n')
    file = tmp_path / "tc.yml"
    file.write_text(CATALOG)
    before = pegasus.tree()
    what = ("--catalog", str(file)) if catalog else ("--only", "hooks")
    code, out, _ = run("--yes", *what)
    assert code == 1
    assert re.search(
        r"^not accepted: \S+/adon-exitcode does not run: no such option: -r", out, re.M
    )
    assert pegasus.tree() == before and file.read_text() == CATALOG


CATALOG = "pegasus: '5.0'\ntransformations:\n- name: a\n  sites: []\n"


def test_the_hooks_of_one_catalog(run: Run, pegasus: FakePegasus, tmp_path: Path) -> None:
    before = pegasus.tree()
    file = tmp_path / "tc.yml"
    file.write_text(CATALOG)
    code, out, err = run("--catalog", str(file), "--yes")
    assert (code, err) == (0, "")
    assert "\n+- namespace: pegasus\n" in out
    assert "\nverified: PRE and POST around its 1 transfer jobs\n" in out
    assert pegasus.tree() == before
    assert run("--catalog", str(file), "--yes")[1].startswith("nothing to do")
    assert run("--catalog", str(file), "--undo", "--yes", home=None)[0] == 0
    assert file.read_text() == CATALOG
    assert not (tmp_path / "tc.adon").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--me"], "--catalog: found with --me, expected one of them"),
        (["--only", "selector"], "found with --only selector"),
        (["--callout"], "found with --callout"),
        ([], "absent.yml: found no such file"),
    ],
)
def test_what_no_catalog_takes_is_one_line(
    run: Run, tmp_path: Path, options: list[str], said: str
) -> None:
    code, _, err = run("--catalog", str(tmp_path / "absent.yml"), "--yes", *options)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
