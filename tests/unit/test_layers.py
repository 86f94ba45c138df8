"""Imports go one way: the folders' order is the architecture."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from symtable import Function, SymbolTable, symtable

import networkx as nx
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
    "examples": {
        "network_provisioner",
        "monitors",
        "site_selector",
        "pegasus_hooks",
        "condor_plugins",
        "adon",
    },
}
# Decisions are functions of values: they import no client library and do no input or output.
PURE = [
    "condor_plugins/pool/cloud/protocol.py",
    "condor_plugins/pool/expander/decision.py",
    "condor_plugins/pool/leases.py",
    "condor_plugins/pool/scaling.py",
    "condor_plugins/pool/schedule.py",
    "condor_plugins/pool/expander/supply.py",
    "condor_plugins/transfers/decide.py",
    "condor_plugins/jobs/request_builder.py",
    "condor_plugins/transfers/run_state.py",
    "monitors/jobs/executions.py",
    "monitors/jobs/jobs.py",
    "monitors/workflows/planned/forecast.py",
    "network_provisioner/controllers/plan.py",
    *sorted(
        str(path.relative_to(ROOT))
        for room in ("selection", "state")
        for path in (ROOT / "network_provisioner" / room).glob("*.py")
    ),
    "network_provisioner/templates/template.py",
    "site_selector/cost.py",
    "site_selector/mapping/mapper.py",
]
MOST_FILES = 12
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


def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    paths = {}
    for package in MAY_IMPORT:
        for file in (ROOT / package).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            paths[name.removesuffix(".__init__")] = file
    return paths


def imported_modules(file: Path, known: Collection[str]) -> set[str]:
    """Those of the known modules that a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            names.update(below & set(known) or {node.module})
    return names & set(known)


@cache
def arrows() -> list[tuple[str, str]]:
    """Each module of ours with each that it imports."""
    files = modules()
    return [(name, o) for name, file in files.items() for o in imported_modules(file, files)]


def test_a_wheel_has_every_package() -> None:
    setup = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (listed,) = (
        k.value for k in ast.walk(setup) if isinstance(k, ast.keyword) and k.arg == "packages"
    )
    # Nowhere else: other folders of the repository come and go while tests run.
    shipped = (ROOT / package for package in MAY_IMPORT.keys() - {"examples"})
    folders = (file.relative_to(ROOT).parent for at in shipped for file in at.rglob("__init__.py"))
    names = {".".join(folder.parts) for folder in folders}
    assert sorted(ast.literal_eval(listed)) == sorted(names)


def test_no_module_comes_back_to_itself() -> None:
    graph = nx.DiGraph(arrows())
    assert len(graph) > 300
    assert [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1] == []


@pytest.mark.parametrize("package", [name for name in MAY_IMPORT if name != "examples"])
def test_no_folder_comes_back_to_itself(package: str) -> None:
    """A package's own modules stand for themselves: some are above its folders, some below."""
    files = modules()
    left_out = {Path(package)} if package == "network_provisioner" else set()

    def room(name: str) -> Path:
        folder = files[name].parent.relative_to(ROOT)
        return files[name].relative_to(ROOT) if {folder} == {Path(package)} - left_out else folder

    graph = nx.DiGraph(
        (room(name), room(other))
        for name, other in arrows()
        if {name.split(".")[0], other.split(".")[0]} == {package}
        and room(name) != room(other)
        and not left_out & {room(name), room(other)}
    )
    assert len(graph) > 5
    assert [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1] == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_the_root_of_a_package_can_be_taken_in(package: str) -> None:
    assert len(list((ROOT / package).glob("*.py"))) <= MOST_FILES


def test_locals_say_what_they_hold() -> None:
    vague = {"found", "told", "one", "asked"}

    def named(table: SymbolTable) -> set[str]:
        own = set(table.get_locals()) if isinstance(table, Function) else set[str]()
        return own.union(*map(named, table.get_children())) & vague

    held = {
        str(file.relative_to(ROOT)): names
        for file in modules().values()
        if (names := named(symtable(file.read_text(encoding="utf-8"), file.name, "exec")))
    }
    assert held == {}


def test_the_modules_of_the_pages_have_rooms() -> None:
    web = ROOT / "adon" / "dashboard" / "web"
    rooms: dict[Path, list[Path]] = {}
    graph = nx.DiGraph()
    for file in web.rglob("*.js"):
        rooms.setdefault(file.parent, []).append(file)
        for other in re.findall(r'from "(\.\.?/[^"]+)";', file.read_text(encoding="utf-8")):
            imported_file = (file.parent / other).resolve()
            assert imported_file.exists(), f"{file}: {other}"
            if imported_file.parent != file.parent:
                graph.add_edge(file.parent, imported_file.parent)
    assert len({file.stem for files in rooms.values() for file in files}) > 30
    assert {room.name: len(files) for room, files in rooms.items() if len(files) > MOST_FILES} == {}
    assert nx.is_directed_acyclic_graph(graph)
