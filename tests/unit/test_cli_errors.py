"""Bad arguments, directories and machines. One line that says what was found and what was expected, exit 2, nothing half-made."""

# ruff: noqa: E501  (messages in one piece can be searched for)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_world import refusal

from adon.cli import site
from network_provisioner.base.errors import BrokerError, InputError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "said", "command"),
    [
        ((), "the following arguments are required: COMMAND", "adon"),
        (("site",), "the following arguments are required: VERB", "adon site"),
        (("trunsit",), "argument COMMAND: invalid choice: 'trunsit' (choose from ", "adon"),
        (("plan", "w.yml", "--sead", "1"), "unrecognized arguments: --sead 1", "adon"),
        (("plan", "w.yml", "--seed", "x"), "argument --seed: invalid int value: 'x'", "adon plan"),
        (("plan", "w.yml", "--dir"), "argument --dir: expected one argument", "adon plan"),
        (
            ("transit", "request", "mu"),
            "the following arguments are required: TO",
            "adon transit request",
        ),
    ],
)
def test_arguments(words: tuple[str, ...], said: str, command: str) -> None:
    line = refusal(*words)
    assert line.startswith(said) and line.endswith(f" (see '{command} --help')")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--min", "fast", "found 'fast', expected a number with a unit such as '200 Mb/s'"),
        ("--min", "10 MB/s", "found '10 MB/s', expected bits per second such as '200 Mb/s'"),
        ("--min", "0", "found '0', expected more than 0"),
        ("--max", "1e300 Gb/s", "found '1e300 Gb/s', expected at most 1 Pb/s"),
        ("--size", "25 Gb", "found '25 Gb', expected bytes such as '1.5 GB'"),
        ("--size", "nan", "found 'nan', expected a number with a unit such as '1.5 GB'"),
        ("--lease", "10 m", "found '10 m', expected a time such as '53 ms', '30 s', '2 h'"),
        ("--lease", "0 s", "found '0 s', expected more than 0"),
    ],
)
def test_quantities(option: str, value: str, said: str) -> None:
    assert refusal("transit", "request", "mu", "tacc", option, value) == f"{option}: {said}"


def test_directories_that_are_no_submit_directories(tmp_path: Path) -> None:
    assert refusal("monitor", "run", ".") == (
        ".: found 0 .dag files and no braindump.yml that names one, expected a submit directory"
    )
    Path("braindump.yml").write_text("dag: [\n")
    assert "braindump.yml" in refusal("monitor", "run", ".")
    Path("braindump.yml").unlink()
    Path("w.dag").touch()
    Path("not.sqlite").write_text("no database" * 100)
    assert refusal("monitor", "run", ".", "--archive", "not.sqlite") == (
        "archive not.sqlite: found a file that is not a whole SQLite database, expected an ADON "
        "archive or no file"
    )


def demo(tmp_path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The demo on a machine without programs, in a process of its own, for it ties itself to who
    started it."""
    home = {"PATH": str(tmp_path), "HOME": str(tmp_path / "home")}
    return subprocess.run(
        [sys.executable, "-m", "examples.demo", *(str(word) for word in words)],
        env={**home, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_demo_of_no_samples(tmp_path: Path) -> None:
    done = demo(tmp_path, "--samples", 0)
    assert (done.returncode, done.stderr) == (
        2,
        "adon: argument --samples: found '0', expected a whole number from 1 to 999 "
        "(see 'python -m examples.demo --help')\n",
    )


def test_the_demo_without_apt_get(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "adon: HTCondor: apt-get: not found, expected a Debian machine\n",
    )
    assert not (tmp_path / "demo-report").exists()


def test_the_demo_where_its_report_cannot_go(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo(tmp_path, "--report", "file/report")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"adon: file/report: {tmp_path}/file is no directory that can be written, expected one\n"
    )


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(site, "placed", broken)
    with pytest.raises(ZeroDivisionError):
        refusal("site", "map", "w.yml")


@pytest.mark.parametrize("error", [InputError("x"), BrokerError("y"), OSError(28, "full")])
def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(site, "placed", broken)
    with pytest.raises(type(error)):
        refusal("--debug", "site", "map", "w.yml")
