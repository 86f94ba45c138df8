"""The programs that jobs run say in one line what is missing, before they write anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import soykb_rig

TOOLS = sorted(p for p in (soykb_rig.EXAMPLE / "tools").iterdir() if os.access(p, os.X_OK))
FILES = ["a.fa", "b", "c", "d", "e", "f", "g", "h"]


def call(tool: Path, cwd: Path, *args: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tool), *args],
        cwd=cwd,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what a shell needs and none of the workflow's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "dirname", "rm"):
        (folder / name).symlink_to(f"/bin/{name}" if name != "dirname" else "/usr/bin/dirname")
    return str(folder)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda p: p.name)
def test_a_missing_program_is_named(tool: Path, tmp_path: Path, bare_path: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = call(tool, work, *FILES, path=bare_path)
    assert done.returncode == 127
    assert done.stderr.startswith(f"{tool.name}: ") and done.stderr.count("\n") == 1
    assert "is not on PATH" in done.stderr
    assert not list(work.iterdir())


@pytest.mark.parametrize("tool", TOOLS, ids=lambda p: p.name)
def test_too_few_arguments_are_refused(tool: Path, tmp_path: Path, bare_path: str) -> None:
    done = call(tool, tmp_path, path=bare_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tool.name}: found 0 arguments, expected: ")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda p: p.name)
def test_a_missing_input_is_named(tool: Path, tmp_path: Path, bare_path: str) -> None:
    for name in ("bwa", "samtools", "bcftools"):
        program = Path(bare_path) / name
        program.write_text("#!/bin/bash\necho must not run >&2\nexit 9\n")
        program.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    arguments = ["a.fa", "b", "--chromosome", "d"] if tool.name == "merge_gvcf" else FILES
    done = call(tool, work, *arguments, path=bare_path)
    assert done.returncode == 66
    assert "is missing or empty" in done.stderr and done.stderr.count("\n") == 1
    assert not list(work.iterdir())
