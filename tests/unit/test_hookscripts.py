"""The shell scripts between DAGMan and the hooks: what they pass on, and what they keep back."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from generated import shared_fixtures
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.errors import InputError
from pegasus_hooks.prepost import hookscripts
from pegasus_hooks.prepost.hookscripts import Commands

Make = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path) -> Make:
    """Makes a program that notes its arguments in a file of its own name, then does ``what``."""

    def make(name: str, what: str = "exit 0") -> Path:
        path = tmp_path / name
        noted = shlex.quote(str(tmp_path / f"{name}.said"))
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {noted}\n{what}\n')
        path.chmod(0o755)
        return path

    return make


def said(tmp_path: Path, name: str) -> list[str]:
    return (tmp_path / f"{name}.said").read_text().split("\n")[:-1]


def run(tmp_path: Path, text: str, *words: str) -> int:
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(0o755)
    return subprocess.run([script, *words], cwd=tmp_path, check=False).returncode


def commands(python: Path, exitcode: Path) -> Commands:
    return Commands(str(python), "/etc/a b.json", str(exitcode))


# How a hook can end; DAGMan is told 0 or 4, whatever it was.
ENDS = {
    "exit 0": 0, "exit 1": 0, "exit 4": 4, "exit 127": 0, "kill -9 $$": 0, "kill -15 $$": 0,
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_pre_tells_dagman_to_go_on_or_to_come_again(
    tmp_path: Path, program: Make, what: str
) -> None:
    python = program("python 3", what)
    text = hookscripts.pre_script(commands(python, Path("/x")))
    assert run(tmp_path, text, "stage_in_1", "0", "2") == ENDS[what]
    hook = str(Path(hookscripts.__file__).parents[1] / "pre.py")
    options = ["-I", "-S", hook, "--config", "/etc/a b.json"]
    assert said(tmp_path, "python 3") == [*options, "stage_in_1", "0", "2"]


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("code", [0, 1, 41])
def test_the_check_of_a_job_is_pegasus_own(
    tmp_path: Path, program: Make, what: str, code: int
) -> None:
    python, check = program("python", what), program("exitcode", f"exit {code}")
    text = hookscripts.exitcode_script(commands(python, check))
    theirs = ["-r", "1", "-s", "a  b*", "-l", "", ".//00/00/stage_in_x.out"]
    assert run(tmp_path, text, "2", *theirs) == code
    assert said(tmp_path, "exitcode") == theirs
    ours = said(tmp_path, "python")
    assert ours[2].endswith("/post.py")
    assert ours[ours.index("--retry") + 1 :] == ["2", "--", *theirs]


def test_without_python_jobs_go_on(tmp_path: Path, program: Make) -> None:
    gone = commands(tmp_path / "gone", program("exitcode", "exit 3"))
    assert run(tmp_path, hookscripts.pre_script(gone), "a", "0", "0") == 0
    assert run(tmp_path, hookscripts.exitcode_script(gone), "-r", "0", "a.out") == 3


THEIRS = ["-r", "0", "-l", "w.log", "-M", "w.cache.meta"]


@pytest.mark.parametrize(
    ("files", "job", "arguments", "starts"),
    [
        ([], "align", THEIRS, False),
        (["00/00/align.sub", "00/00/sort.sh"], "align", THEIRS, False),
        ([], "stage_in_1", THEIRS, True),
        (["00/00/align.sh"], "align", THEIRS, True),  # PegasusLite, which may move files
        (["align.sh"], "align", THEIRS, True),
        (["00/00/00/x.sub"], "align", THEIRS, True),  # nobody knows how deep
        ([], "align", THEIRS[:4], False),
    ],
)
def test_jobs_without_transfers_start_no_python(
    tmp_path: Path, program: Make, files: list[str], job: str, arguments: list[str], starts: bool
) -> None:
    given_ = commands(program("python"), program("exitcode", "exit 3"))
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert run(tmp_path, hookscripts.pre_script(given_), job, "0", "2") == 0
    assert (tmp_path / "python.said").exists() is starts
    # A decision file says that something was asked; without -M it is ours to keep sizes.
    (tmp_path / "00/00").mkdir(parents=True, exist_ok=True)
    text = hookscripts.exitcode_script(given_)
    for has_decision in (False, True):
        (tmp_path / "python.said").unlink(missing_ok=True)
        if has_decision:
            (tmp_path / "00/00" / f"{job}.adon.json").touch()
        assert run(tmp_path, text, "1", *arguments, f".//00/00/{job}.out") == 3
        assert said(tmp_path, "exitcode") == [*arguments, f".//00/00/{job}.out"]
        here = has_decision or "stage_" in job or "-M" not in arguments
        assert (tmp_path / "python.said").exists() is here


def test_a_post_of_a_catalog_gives_pegasus_what_its_planner_would(
    tmp_path: Path, program: Make
) -> None:
    (tmp_path / "flow-0.dag").touch()
    (tmp_path / "flow-0.dag.rescue001").touch()
    given_ = commands(program("python"), program("exitcode", "exit 5"))
    text = hookscripts.catalog_exitcode_script(given_)
    assert run(tmp_path, text, "2", "-r", "0", "/run/00/00/stage_in_x.out") == 5
    wanted = ["-r", "0", "-l", "flow-0.exitcode.log", "-M", "flow-0.cache.meta"]
    assert said(tmp_path, "exitcode") == [*wanted, "/run/00/00/stage_in_x.out"]
    ours = said(tmp_path, "python")
    assert ours[ours.index("--retry") + 1 :] == ["2", "--", *wanted, "/run/00/00/stage_in_x.out"]


WORDS = st.text(st.characters(codec="ascii", exclude_characters="\0\n\r"), max_size=12)


@settings(shared_fixtures, max_examples=40)
@given(words=st.lists(WORDS, min_size=1, max_size=6))
def test_every_argument_arrives_as_it_is(tmp_path: Path, program: Make, words: list[str]) -> None:
    text = hookscripts.exitcode_script(commands(program("python"), program("exitcode")))
    run(tmp_path, text, "0", *words)
    assert said(tmp_path, "exitcode") == words
    run(tmp_path, text, "-r", *words)  # of a DAG that was planned before the retry stood there
    assert said(tmp_path, "exitcode") == ["-r", *words]


@pytest.mark.parametrize("path", ["/a b/adon-pre", '/a"b', "/a'b", "/a$b", "/a\tb"])
def test_a_path_that_dagman_would_not_carry_is_refused(path: str) -> None:
    with pytest.raises(InputError, match=r"PRE script: found .*, expected a path without blanks"):
        hookscripts.settings(Path(path), Path("/x"))
