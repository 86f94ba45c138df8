"""A small workflow with catalogs, to be planned and run: split, shout, count, join.

raw.txt (store) ─► split ─┬─ a.txt ─► shout ─ A.txt ─┐
                          └─ b.txt ─► count ─ n.txt ─┴─► join ─► result.txt
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pegasus_hooks.planner import Options, Sources
from pegasus_hooks.planner.submitfile import CONFIGURATION
from site_selector.inputs import Inputs, read_inputs

ROOT = Path(__file__).resolve().parents[1]
SITES = ("store", "mu", "tacc", "local")
MAPPING = {"ID1": "mu", "ID2": "tacc", "ID3": "mu", "ID4": "tacc"}
RAW = "one\ntwo\nthree\nfour\n"
RESULT = "ONE\nTWO\n2\n"
PROGRAMS = {
    "split": 'head -n 2 "$1" > a.txt; tail -n +3 "$1" > "$2"',
    "shout": 'tr a-z A-Z < "$1" > out/A.txt; echo noise',
    "count": "wc -l | tr -d ' '",
    "join": 'cat "$1" "$2" > result.txt; printf "no newline at the end"',
}
FIXED = Options(user="u", python="/usr/bin/python3", wf_uuid="fixed-uuid", planned_at=1.7e9)

Url = Callable[[str, str], str]


def by_gridftp(site: str, path: str) -> str:
    return f"gsiftp://{site}.example:2811{path}"


def by_file(_site: str, path: str) -> str:
    return f"file://{path}"


@dataclass(frozen=True)
class Case:
    """The files of a workflow below ``root``, and every site's directories there."""

    root: Path

    @property
    def sources(self) -> Sources:
        return Sources(self.root / "workflow.yml")

    def inputs(self) -> Inputs:
        return read_inputs(self.sources, ("*", "local"), CONFIGURATION)

    def scratch(self, site: str) -> Path:
        return self.root / site / "scratch"

    def storage(self, site: str) -> Path:
        return self.root / site / "storage"

    def change(self, name: str, edit: Callable[[Any], object]) -> None:
        """Edit the parsed ``<name>.yml`` in place."""
        path = self.root / f"{name}.yml"
        data = yaml.safe_load(path.read_text())
        edit(data)
        path.write_text(yaml.safe_dump(data, sort_keys=False))


def uses(reads: Mapping[str, int | None], writes: Mapping[str, bool]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for lfn, size in reads.items():
        entries.append({"lfn": lfn, "type": "input"} | ({"size": size} if size else {}))
    for lfn, keep in writes.items():
        entries.append({"lfn": lfn, "type": "output", "stageOut": keep})
    return entries


def job(number: int, name: str, arguments: list[str], files: Any, **more: Any) -> dict[str, Any]:
    head = {"type": "job", "namespace": "t", "version": "1.0", "name": name, "id": f"ID{number}"}
    return head | {"arguments": arguments, "uses": files} | more


def make_case(root: Path, url: Url = by_gridftp) -> Case:
    """Write programs, data, workflow and catalogs below ``root``."""
    case = Case(root)
    (root / "bin").mkdir(parents=True)
    for name, body in PROGRAMS.items():
        program = root / "bin" / name
        program.write_text(f"#!/bin/sh\nset -e\n{body}\n")
        program.chmod(0o755)
    for site in SITES:
        case.scratch(site).mkdir(parents=True)
        case.storage(site).mkdir(parents=True)
    raw = case.storage("store") / "raw.txt"
    raw.write_text(RAW)
    jobs = [
        job(1, "split", ["raw.txt", "b.txt"],
            uses({"raw.txt": len(RAW)}, {"a.txt": False, "b.txt": False})),
        job(2, "shout", ["a.txt"], uses({"a.txt": None}, {"out/A.txt": False})),
        job(3, "count", [], uses({"b.txt": None}, {"n.txt": True}), stdin="b.txt", stdout="n.txt"),
        job(4, "join", ["out/A.txt", "n.txt"],
            uses({"out/A.txt": None, "n.txt": None}, {"result.txt": True})),
    ]  # fmt: skip
    sites = [
        {
            "name": site,
            "arch": "x86_64",
            "os.type": "linux",
            "directories": [
                {
                    "type": kind,
                    "path": str(path),
                    "sharedFileSystem": True,
                    "fileServers": [{"url": url(site, str(path)), "operation": "all"}],
                }
                for kind, path in (
                    ("sharedScratch", case.scratch(site)),
                    ("localStorage", case.storage(site)),
                )
            ],
            "profiles": {
                "condor": {"universe": "vanilla", "requirements": f'PegasusSite == "{site}"'},
                "pegasus": {"style": "condor"},
                "env": {"WHERE": f"at {site}"},
            },
        }
        for site in SITES
    ]
    for site in sites:
        if site["name"] == "local":
            del site["profiles"]["condor"]  # type: ignore[attr-defined]
    transformations = [
        {
            "namespace": "t",
            "name": name,
            "version": "1.0",
            "sites": [
                {"name": site, "pfn": str(root / "bin" / name), "type": "installed"}
                for site in ("mu", "tacc", "local")
            ],
        }
        for name in PROGRAMS
    ]
    replica = {"site": "store", "pfn": url("store", str(raw))}
    documents = {
        "workflow": {"pegasus": "5.0.4", "name": "mini", "jobs": jobs, "jobDependencies": []},
        "sites": {"pegasus": "5.0.4", "sites": sites},
        "transformations": {"pegasus": "5.0.4", "transformations": transformations},
        "replicas": {
            "pegasus": "5.0.4",
            "replicas": [{"lfn": "raw.txt", "pfns": [replica], "metadata": {"size": len(RAW)}}],
        },
    }
    for name, data in documents.items():
        # Through JSON, so that YAML finds no object twice and writes no anchors.
        plain = json.loads(json.dumps(data))
        (root / f"{name}.yml").write_text(yaml.safe_dump(plain, sort_keys=False))
    return case
