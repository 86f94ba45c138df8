"""Imports go one way: the folders' order is the architecture."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT: dict[str, set[str]] = {
    "network_provisioner": set(),
    "monitors": {"network_provisioner"},
    "site_selector": {"network_provisioner", "monitors"},
    "pegasus_hooks": {"network_provisioner", "monitors", "site_selector"},
    "condor_plugins": {"network_provisioner", "monitors", "site_selector"},
    "adon": {
        "network_provisioner",
        "monitors",
        "site_selector",
        "pegasus_hooks",
        "condor_plugins",
    },
}
# Decisions are functions of values: they import no client library and do no input or output.
PURE = [
    "network_provisioner/selection/admission.py",
    "network_provisioner/reservations/active_transits.py",
    "network_provisioner/placement.py",
    "network_provisioner/terms.py",
    "network_provisioner/selection/transit.py",
    "network_provisioner/reservations/ledger.py",
    "network_provisioner/templates/template.py",
    "network_provisioner/controllers/plan.py",
    "condor_plugins/transfers/run_state.py",
    "condor_plugins/transfers/decide.py",
    "condor_plugins/transfers/request_builder.py",
    "site_selector/cost.py",
    "site_selector/mapping/mapper.py",
]
EFFECTS = {
    "requests", "subprocess", "socket", "sqlite3", "http", "urllib", "htcondor2", "classad2",
    "os_ken", "fastapi", "uvicorn", "openstack", "irods", "os", "shutil", "asyncio",
}  # fmt: skip


def imported(path: Path) -> set[str]:
    """Top-level names of everything a module imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_one_way(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"package {package} has no modules"
    wrong = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported(file) & (set(MAY_IMPORT) - allowed)
    }
    assert not wrong


@pytest.mark.parametrize("module", PURE)
def test_decisions_touch_nothing(module: str) -> None:
    assert not imported(ROOT / module) & EFFECTS


def test_the_check_sees_a_forbidden_import(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from adon.cli import main\n    return main\n")
    assert imported(bad) == {"adon"}
