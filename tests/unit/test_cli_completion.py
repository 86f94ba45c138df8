"""``adon completion``: the scripts, and bash with its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_rig import application, keyring, serving, token_of
from broker_rig import Clock, Rig
from cli_world import NOBODY, adon, refusal

from adon.cli import completion

ASK = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
$(complete -p adon | sed 's/.*-F \\([^ ]*\\).*/\\1/') adon
echo "${COMPREPLY[@]}"
"""

PATIENT = f"""#!{sys.executable}
import sys
from adon.cli import completion
from adon.cli.main import main
completion._ANSWER_S = 120.0
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], "transit transfer"),
        (["transit", "re"], "request renew release"),
        (["transit", "list", "--st"], "--state"),
        (["broker", "token", "new", "--role", "e"], "engineer"),
        (["help", "topology", ""], "show drain check export"),
        (["broker", "--config", "ado"], "adon.yml"),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], expected: str) -> None:
    (tmp_path / "adon.yml").touch()
    assert completed(tmp_path, *words) == expected.split()


def completed(folder: Path, *words: str) -> list[str]:
    """What bash makes of the last word."""
    script = folder / "script"
    script.write_text(adon("completion", "bash").out)
    command = ["bash", "-c", ASK, "bash", str(script), "adon", *words]
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=env)
    return done.stdout.split()


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With two transits, one of which a shell must not read. Who asks for names waits for them, as
    nobody does who presses Tab."""
    monkeypatch.setattr(completion, "_ANSWER_S", 120.0)
    patient = tmp_path / "bin" / "adon"
    patient.parent.mkdir()
    patient.write_text(PATIENT)
    patient.chmod(0o755)
    rig = Rig(tmp_path / "state.sqlite", clock=Clock(1_790_000_000.0))
    (tmp_path / "token").write_text(token_of("engineer"))
    monkeypatch.setenv("ADON_TOKEN_FILE", str(tmp_path / "token"))
    with serving(application(rig, keyring(rig))) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        for name in ("night-7", f"$(id>{tmp_path}/run)"):
            assert adon("transit", "request", "mu", "tacc", "--id", name).code == 0
        yield


@pytest.mark.usefixtures("broker")
def test_bash_completes_names_that_the_broker_knows(tmp_path: Path) -> None:
    assert completed(tmp_path, "transit", "release", "") == ["night-7"]
    assert not (tmp_path / "run").exists()
    assert completed(tmp_path, "transit", "request", "m") == ["mu"]
    assert completed(tmp_path, "topology", "drain", "s1") == ["s1", "s1-s2", "s1-r1"]
    assert completed(tmp_path, "transfer", "advise", "mu", "tacc", "--template", "d") == ["default"]


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("kind", sorted(completion._NAMES))
def test_names_of_each_kind_can_be_had(kind: str) -> None:
    ran = adon("completion", "--names", kind)
    assert (ran.code, ran.err) == (0, "")
    assert ("tacc" in ran.out.splitlines()) == (kind == "sites")


def test_without_a_broker_there_are_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADON_BROKER", f"http://{NOBODY}")
    ran = adon("completion", "--names", "sites")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_other_shells_have_theirs() -> None:
    assert adon("completion", "zsh").out.startswith("#compdef adon\n")
    assert "complete adon " in adon("completion", "tcsh").out
    assert "expected one of bash, zsh, tcsh" in refusal("completion", "fish")


def test_each_part_of_a_named_link_is_no_element() -> None:
    nodes = {"mu": "site", "s1": "switch", "r1": "router", "blue": "link"}
    data = {
        "nodes": [{"name": name, "kind": kind} for name, kind in nodes.items()],
        "links": [{"a": a, "b": b} for a, b in (("mu", "s1"), ("s1", "blue"), ("blue", "r1"))],
    }
    assert list(completion._elements(data)) == ["s1", "r1", "blue", "mu-s1"]
