"""Workflows and catalogs of other people, mapped and planned as they are written.

    python -m tests.bench.pegasus_inputs CHECKOUT... [--pegasus-plan PATH] [--refused]

A checkout is a folder, such as one of pegasus-isi/pegasus or pegasushub/pegasus-site-catalogs.
Workflows are the files in YAML or XML that have jobs, and what the generators below ``test/core``
and ``tutorial`` write when they run with a stand-in for ``pegasus-plan``, whose options are handed
on. Every catalog that lies alone is read. Variables that are not set are given a value. A real
``pegasus-plan`` plans as well where it is named; else the embedded planner does.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from adon.cli.main import main as adon
from network_provisioner.base.errors import InputError
from site_selector.catalogs import pegasus4
from site_selector.catalogs.documents import read_document
from site_selector.catalogs.entries import replicas_of, transformations_of

_BIN = Path(sys.executable).parent
_LIMIT_S = 40.0
_CAUSE = re.compile(r"\[\d\]:? ")
_CATALOG_FILE = re.compile(r"-Dpegasus\.catalog\.(site|replica|transformation)\.file=(.+)")
_VARIABLE = re.compile(r"(?<!\\)\$\{(\w+)\}")
_STAND_IN = f"""#!{sys.executable}
import json, os, sys
open(os.environ["PLANNED"], "w").write(json.dumps([os.getcwd(), sys.argv[1:]]))
sys.exit(1)
"""
_QUIET = "#!/bin/sh\necho /usr\n"
_VARIANTS = (
    "condorio",
    "nonsharedfs",
    "sharedfs",
)  # folders of settings, named on the command line
_TOOLS = ("config", "version", "run", "status", "keg", "transfer", "kickstart")
_PASSED = {
    "--sites": "--execution-sites",
    "--output-sites": "--output-site",
    "--input-dir": "--input-dir",
    "--staging-site": "--staging-site",
    "--staging": "--staging-site",
    "--conf": "--conf",
    "--sites-file": "--sites",
    "--replicas-file": "--replicas",
    "--transformations-file": "--transformations",
}
_FORMS = ("*.yml", "*.yaml", "*.dax", "sites*.xml", "tc*.txt", "tc*.text")
_CATALOGS = {"sites": "sites", "replicas": "replicas", "transformations": "transformations"}


@dataclass
class Found:
    """One workflow or catalog, and what became of it: "" for well."""

    name: str
    kind: str
    folder: Path
    file: str
    options: list[str] = field(default_factory=list)
    mapped: str = ""
    planned: str = ""
    pegasus: str = ""  # what pegasus-plan says of what was refused


def main() -> int:
    """Print the table; exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pegasus_inputs")
    parser.add_argument("checkout", type=Path, nargs="+")
    parser.add_argument("--pegasus-plan", type=Path, help="a real one, to plan with")
    parser.add_argument("--refused", action="store_true", help="one line for each refusal as well")
    args = parser.parse_args()
    if args.pegasus_plan:
        os.environ["PATH"] = f"{args.pegasus_plan.absolute().parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="pegasus-inputs-") as scratch:
        items = [f for c in args.checkout for f in _found(c.resolve(), Path(scratch))]
        for item in items:
            _try(item)
            if args.pegasus_plan and item.kind == "workflow" and (item.mapped or item.planned):
                item.pegasus = _pegasus(args.pegasus_plan.absolute(), item)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    _print(items, args.refused)
    return 0


def _found(checkout: Path, scratch: Path) -> Iterator[Found]:
    for part in ("test/core", "tutorial", "share"):
        for program in sorted((checkout / part).rglob("*.py")):
            if "Pegasus.api" in program.read_text(encoding="utf-8", errors="replace"):
                yield from _generated(program, checkout, scratch)
    for file in sorted(file for form in _FORMS for file in checkout.rglob(form)):
        kind = _kind_of(file)
        if kind:
            folder = file.parent
            if kind == "workflow":
                folder = scratch / f"as-is-{len(list(scratch.iterdir()))}"
                shutil.copytree(file.parent, folder, ignore_dangling_symlinks=True)
            words = []
            for catalog in _CATALOGS if kind == "workflow" else ():
                if (folder / "catalogs" / f"{catalog}.yml").exists():
                    words += [f"--{catalog}-file", f"catalogs/{catalog}.yml"]
            yield Found(str(file.relative_to(checkout)), kind, folder, file.name, words)


def _kind_of(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        old = pegasus4.converted(text)
        root = yaml.load(text, yaml.CSafeLoader) if old is None else old[0]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, pegasus4.FormError):
        return ""
    if not isinstance(root, dict):
        return ""
    if isinstance(root.get("jobs"), list) and "pegasus" in root:
        return "workflow"
    return next((kind for kind in _CATALOGS if isinstance(root.get(kind), list)), "")


def _generated(program: Path, checkout: Path, scratch: Path) -> Iterator[Found]:
    """What a generator has planned, once for each way to call it that plans something else."""
    folders = sorted(p.name for p in program.parent.iterdir() if p.is_dir())
    seen = set()
    for arguments in ([], ["/usr"], *([name] for name in folders if name in _VARIANTS)):
        if seen and arguments == ["/usr"]:
            continue
        folder = scratch / f"run-{len(list(scratch.iterdir()))}"
        shutil.copytree(program.parent, folder, ignore_dangling_symlinks=True)
        planned = folder / ".planned.json"
        env = _environment(folder) | {"PLANNED": str(planned)}
        try:
            subprocess.run(
                [sys.executable, program.name, *arguments], cwd=folder, env=env, timeout=_LIMIT_S,
                stdin=subprocess.DEVNULL, capture_output=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return
        name = f"{program.relative_to(checkout)} {' '.join(arguments)}".strip()
        if planned.exists():
            where, words = json.loads(planned.read_text())
            if str(words) not in seen:
                seen.add(str(words))
                files = [word for word in words if word.endswith((".yml", ".yaml"))]
                yield Found(name, "workflow", Path(where), files[-1], words)
        elif not seen and (folder / "workflow.yml").exists():
            yield Found(name, "workflow", folder, "workflow.yml")
            return


def _environment(folder: Path) -> dict[str, str]:
    tools = folder / ".pegasus" / "bin"  # the client of Pegasus.api looks for that name
    tools.mkdir(parents=True)
    for name in [f"pegasus-{tool}" for tool in _TOOLS] + ["condor_version", "condor_config_val"]:
        (tools / name).write_text(_QUIET)
    (tools / "pegasus-plan").write_text(_STAND_IN)
    for file in tools.iterdir():
        file.chmod(0o755)
    return {**os.environ, "PATH": f"{tools}:{_BIN}:{os.environ['PATH']}", "HOME": str(folder)}


def _try(item: Found) -> None:
    if item.kind != "workflow":
        option = {"sites": ["site", "show", "--sites"]}.get(item.kind)
        item.mapped = _run([*option, item.file], item.folder) if option else _read(item)
        return
    options = []
    for word, value in zip(item.options, item.options[1:], strict=False):
        options += [_PASSED[word], value] if word in _PASSED else []
    for word in item.options:
        if named := _CATALOG_FILE.match(word):
            options += [f"--{named[1]}s", named[2]]
    item.mapped = _run(["site", "map", item.file, *options], item.folder)
    if not item.mapped:
        item.planned = _run(["plan", item.file, "--dir", ".planned", *options], item.folder)


def _pegasus(planner: Path, item: Found) -> str:
    """What pegasus-plan says of a workflow where its author's options are all that it is given."""
    options = [word for word in item.options if word not in ("--submit", "-s")]
    done = subprocess.run(
        [str(planner), "--dir", ".pegasus-planned", *(options or [item.file])],
        cwd=item.folder, timeout=_LIMIT_S, capture_output=True, text=True, check=False,
        env={**os.environ, "HOME": str(item.folder)},
    )  # fmt: skip
    if done.returncode == 0:
        return "plans it"
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    causes = [line for line in said if _CAUSE.match(line)]  # the deepest one comes last
    return (causes or said or [f"exit {done.returncode}"])[-1]


def _run(words: Sequence[str], folder: Path) -> str:
    """In this process, which has loaded all that takes long."""
    for file in (file for form in _FORMS for file in folder.rglob(form)):
        for name in _VARIABLE.findall(file.read_text(encoding="utf-8", errors="replace")):
            os.environ.setdefault(name, f"/{name.lower()}")
    said, before, home = io.StringIO(), Path.cwd(), os.environ.get("HOME", "")
    os.chdir(folder)
    os.environ["HOME"] = str(folder)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            code = adon(words)
    finally:
        os.chdir(before)
        os.environ["HOME"] = home
    return "" if code == 0 else said.getvalue().strip().splitlines()[-1]


def _read(item: Found) -> str:
    try:
        document = read_document(item.folder / item.file, f"catalog of {item.kind}")
        (replicas_of if item.kind == "replicas" else transformations_of)(document)
    except InputError as error:
        return str(error)
    return ""


def _print(items: Sequence[Found], refused: bool) -> None:
    print("| kind | found | mapped or read | planned as well | refused by pegasus-plan too |")
    print("|---|---|---|---|---|")
    for kind in ("workflow", *_CATALOGS):
        of_kind = [item for item in items if item.kind == kind]
        good = [item for item in of_kind if not item.mapped]
        planned = sum(not item.planned for item in good) if kind == "workflow" else ""
        too = sum(item.pegasus not in ("", "plans it") for item in of_kind)
        row = [kind, len(of_kind), len(good), planned, too if kind == "workflow" else ""]
        print("| " + " | ".join(map(str, row)) + " |")
    for item in items if refused else ():
        for step, problem in (("mapped", item.mapped), ("planned", item.planned)):
            if problem:
                print(f"{item.name}: not {step}: {problem}")
        if item.pegasus:
            print(f"{item.name}: pegasus-plan: {item.pegasus}")


if __name__ == "__main__":
    sys.exit(main())
