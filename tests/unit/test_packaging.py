"""Packages: scripts are shell, services start commands that there are, and versions agree."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest

from adon.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNITS = sorted((PACKAGING / "systemd").glob("*.service"))


@pytest.mark.parametrize(
    "script", ["build-deb", "build-rpm", "debian/postinst", "debian/prerm", "debian/postrm"]
)
def test_scripts_are_shell(script: str) -> None:
    subprocess.run(["sh", "-n", PACKAGING / script], check=True)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_service_starts_a_command_that_there_is(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
    program, *words = shlex.split(line.replace("${ADDRESS}", "192.0.2.1"))
    assert program == "/usr/bin/adon"
    assert callable(build_parser(words).parse_args(words).run)
    assert unit.stem in (PACKAGING / "debian/prerm").read_text(encoding="utf-8")
    assert f"{unit.stem}.service" in (PACKAGING / "adon.spec").read_text(encoding="utf-8")


def test_the_man_page_keeps_lines_that_begin_with_quotes() -> None:
    escaped = runpy.run_path(str(PACKAGING / "generate.py"))["escaped"]
    assert escaped(".TP\n'load' is\na 'free'\n") == ".TP\n\\&'load' is\na 'free'\n"


def test_the_spec_has_the_release() -> None:
    setup = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    words = (k for k in ast.walk(setup) if isinstance(k, ast.keyword) and k.arg == "version")
    (version,) = (ast.literal_eval(keyword.value) for keyword in words)
    spec = (PACKAGING / "adon.spec").read_text(encoding="utf-8")
    assert re.search(rf"^Version: +{re.escape(version)}$", spec, re.M)
    assert f"adon_{version}_amd64.deb" in (ROOT / "docs/install.md").read_text(encoding="utf-8")
