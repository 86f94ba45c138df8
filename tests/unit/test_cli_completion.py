"""``adon completion``: the scripts, and bash with its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_world import adon, refusal

ASK = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
$(complete -p adon | sed 's/.*-F \\([^ ]*\\).*/\\1/') adon
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], "transit transfer"),
        (["transit", "re"], "request renew release"),
        (["transit", "list", "--st"], "--state"),
        (["broker", "token", "new", "--role", "e"], "engineer"),
        (["broker", "--config", "ado"], "adon.yml"),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], expected: str) -> None:
    script = tmp_path / "script"
    script.write_text(adon("completion", "bash").out)
    (tmp_path / "adon.yml").touch()
    command = ["bash", "-c", ASK, "bash", str(script), "adon", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected.split()


def test_other_shells_have_theirs() -> None:
    assert adon("completion", "zsh").out.startswith("#compdef adon\n")
    assert "complete adon " in adon("completion", "tcsh").out
    assert "expected one of bash, zsh, tcsh" in refusal("completion", "fish")
