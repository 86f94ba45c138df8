"""Planning with a real ``pegasus-plan``, where one is on PATH.

Pegasus plans as it always does. It is given the site selection as ``execution.site`` hints in a
copy of the workflow, and the hooks by properties: ``dagman.pre`` for every job (jobs that move no
data leave it at once) and ``dagman.post.path.pegasus-exitcode`` for the script around Pegasus's own
check, so that nothing of Pegasus is replaced.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitors.workflows.planned import job_files
from network_provisioner.base.errors import AdonError, InputError, MissingError
from pegasus_hooks.planner.model import PlannedWorkflow
from pegasus_hooks.prepost import hookscripts
from pegasus_hooks.prepost.prejob import MULTIPART_ENDING
from site_selector.catalogs import properties
from site_selector.catalogs.documents import read_text
from site_selector.catalogs.pegasus4 import is_text, is_xml
from site_selector.catalogs.sources import (
    CONFIGURATION,
    PROPERTY_VARIABLE,
    Sources,
    read_properties,
)
from site_selector.mapping.hinted import hinted_copy
from site_selector.mapping.placement import Mapping as SiteMapping

PLANNER_NAME, STARTER_NAME = "pegasus-plan", "pegasus-run"
_CLUSTER = re.compile(r"submitted to cluster (\d+)")
# ``[2] java.lang.RuntimeException: what is wrong at edu.isi.….Kickstart.f(Kickstart.java:900)``,
# and with -v ``Caused by: …`` above a trace; the message may have several lines.
_EXCEPTION = re.compile(
    r"(?:\[\d+\]|\[FATAL ERROR\]|Caused by:) +[\w.$]+: (.+?)\s+at [\w.$]+\(\w+\.java:\d+\)",
    re.DOTALL,
)
_LOGGED = re.compile(r"^\d{4}\.\d\d\.\d\d .*\n?", re.MULTILINE)
# What Pegasus's start script says first of a Python module that is missing.
_REQUIRED = re.compile(r"^Pegasus requires .+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    code: int
    output: str
    errors: str


PlannerRunner = Callable[[Sequence[str]], Finished]
"""Runs a command to its end. Raises OSError if it cannot be started."""


def find_planner() -> Path | None:
    """The ``pegasus-plan`` on PATH, None if there is none."""
    planner = shutil.which(PLANNER_NAME)
    return Path(planner) if planner else None


def _planner_for(program: str) -> Path:
    planner = find_planner()
    if planner is None:
        raise MissingError(f"{program}: not on PATH, expected a Pegasus installation")
    return planner


def plan(
    sources: Sources,
    mapping: SiteMapping,
    base_dir: Path,
    output_site: str,
    hooks: Path | None = None,
    configuration: str | None = None,
    run: PlannerRunner | None = None,
    selector: str = "",
) -> PlannedWorkflow:
    """Plan with Pegasus; the submit directory is where Pegasus puts it below ``base_dir``.

    The user's own properties keep the last word but for catalogs and data ``configuration``, which
    are those that ``mapping`` was made with, and for the hooks. With a ``selector`` Pegasus maps by
    that one of its own, to all sites that ``mapping`` could choose.

    Raises MissingError without ``pegasus-plan``, InputError if it refuses, with its last line.
    """
    planner = _planner_for(PLANNER_NAME)
    work = base_dir.absolute() / "adon"
    try:
        work.mkdir(parents=True, exist_ok=True)
        workflow = work / "workflow.yml"
        if selector:
            shutil.copyfile(sources.workflow, workflow)
        else:
            hinted_copy(sources.workflow, mapping, workflow, sources.variables)
        scripts = None
        if hooks is not None:
            scripts = write_scripts(work, hooks, planner.with_name("pegasus-exitcode"))
        text = properties_text(sources, scripts, configuration)
        text += f"pegasus.selector.site={selector}\n" if selector else ""
        conf = work / "pegasus.properties"
        conf.touch(0o600)  # the user's may hold a password
        conf.write_text(text, encoding="utf-8")
        sites = {placed.site for placed in mapping.placements}
        if selector:
            sites = {way.site for placed in mapping.placements for way in placed.alternatives}
        command = plan_command(planner, conf, sorted(sites), output_site, base_dir, workflow)
        if sources.input_dirs:
            folders = ",".join(str(folder.absolute()) for folder in sources.input_dirs)
            command[-1:-1] = ["--input-dir", folders]
        if sources.staging_site:
            command[-1:-1] = ["--staging-site", sources.staging_site]
        # Variables that are properties are among those of ``conf``, which they would go before.
        env = {k: v for k, v in os.environ.items() if not k.startswith(PROPERTY_VARIABLE)}
        planned = _planned((run or runner(env))(command))
        if hooks is not None:
            _make_room(planned.submit_dir)
    except OSError as error:
        raise InputError(f"{PLANNER_NAME}: {error}") from None
    return planned


def start(submit_dir: Path, run: PlannerRunner | None = None) -> int:
    """Start a planned workflow with ``pegasus-run``, which also starts Pegasus's own monitoring;
    the cluster of its DAGMan. Raises MissingError without Pegasus, AdonError if it refuses.
    """
    starter = _planner_for(STARTER_NAME).with_name(STARTER_NAME)
    try:
        done = (run or runner())([str(starter), str(submit_dir)])
    except OSError as error:
        raise AdonError(f"{STARTER_NAME}: {error}") from None
    match = _CLUSTER.search(done.errors) or _CLUSTER.search(done.output)
    if done.code != 0 or match is None:
        # Its errors go to standard output.
        reason = _reason(Finished(done.code, done.errors, done.output))
        raise AdonError(f"{STARTER_NAME}: exit {done.code}: {reason}")
    return int(match[1])


def plan_command(
    planner: Path,
    conf: Path,
    sites: Sequence[str],
    output_site: str,
    base_dir: Path,
    workflow: Path,
) -> list[str]:
    """The command line. ``--json`` makes the planner say where the submit directory is."""
    return [
        str(planner),
        "--conf", str(conf),
        "--sites", ",".join(sites),
        "--output-sites", output_site,
        "--dir", str(base_dir.absolute()),
        "--cleanup", "leaf",
        "--json",
        str(workflow),
    ]  # fmt: skip


def properties_text(
    sources: Sources,
    scripts: tuple[Path, Path] | None = None,
    configuration: str | None = None,
) -> str:
    """The properties of a plan: ours where the user says nothing, then the user's own, then
    catalogs, data ``configuration`` and hooks. ``scripts`` are PRE and the script around
    pegasus-exitcode. Raises InputError."""
    given = sources.properties
    ours: dict[str, str] = {}
    for kind in ("site", "replica", "transformation"):
        catalog = sources.catalog(kind)
        if catalog is not None:
            key = f"pegasus.catalog.{kind}"
            if catalog == getattr(sources, f"{kind}s") or key not in given:
                ours[key] = _kind_of(catalog)
            ours[f"{key}.file"] = str(catalog.absolute())
    if configuration is not None:
        ours[CONFIGURATION] = configuration
    theirs: dict[str, str] = {}
    for file in sources.property_files:
        theirs |= {key: value for _, key, value in read_properties(file)}
    theirs |= sources.variable_properties
    lines = [] if "pegasus.transfer.links" in given else ["pegasus.transfer.links=true"]
    lines += [
        f"{properties.escape_key(key)}={properties.escape(value)}"
        for key, value in {**theirs, **ours}.items()
    ]
    if scripts is not None:
        hooked = hookscripts.settings(*scripts)
        taken = [key for key in hooked if key in given]
        if taken:
            raise InputError(
                f"pegasus.properties: {taken[0]} is set by the user, and ADON's hooks need it; "
                "expected it unset"
            )
        lines += [f"{key}={value}" for key, value in hooked.items()]
        wished = hookscripts.preferred_properties()
        lines += [f"{key}={value}" for key, value in wished.items() if key not in given]
    return "\n".join(lines) + "\n"


def _kind_of(catalog: Path) -> str:
    if catalog.name == "rc.txt":
        return "File"
    text = read_text(catalog, "catalog of Pegasus")
    return "XML" if is_xml(text) else "Text" if is_text(text) else "YAML"


def write_scripts(directory: Path, hooks: Path, exitcode: Path) -> tuple[Path, Path]:
    """PRE, and the stand-in for ``pegasus-exitcode``: properties name a program, not a command."""
    commands = hookscripts.Commands(sys.executable, str(hooks.absolute()), str(exitcode))
    out = []
    for name, text in (
        (hookscripts.PRE_NAME, hookscripts.pre_script(commands)),
        (hookscripts.POST_NAME, hookscripts.exitcode_script(commands)),
    ):
        path = directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        out.append(path)
    return out[0], out[1]


def _planned(done: Finished) -> PlannedWorkflow:
    if done.code != 0:
        raise InputError(f"{PLANNER_NAME}: exit {done.code}: {_reason(done)}")
    try:
        answer: Mapping[str, object] = json.loads(done.output)
        submit_dir = Path(str(answer["submit_dir"]))
    except (ValueError, KeyError, TypeError):
        raise AdonError(
            f"{PLANNER_NAME}: found {done.output[:80]!r}, expected JSON with its submit_dir"
        ) from None
    dump = job_files.braindump(submit_dir)
    return PlannedWorkflow(
        name=dump.get("dax_label", ""),
        submit_dir=submit_dir,
        dag=job_files.dag_file(submit_dir, dump),
        wf_uuid=dump.get("wf_uuid", ""),
        planner=PLANNER_NAME,
        output=f"Planned by {PLANNER_NAME} {dump.get('planner_version', '')} in {submit_dir}",
    )


def _make_room(submit_dir: Path) -> None:
    """Folders for the records of pegasus-transfer, which does not make them."""
    for listing in submit_dir.rglob("*.in"):
        listing.with_suffix(MULTIPART_ENDING).mkdir(exist_ok=True)


def _reason(done: Finished) -> str:
    """Why a command of Pegasus failed: its innermost exception, else its last words."""
    output = done.errors.strip() or done.output.strip()
    if exceptions := _EXCEPTION.findall(output):
        return " ".join(exceptions[-1].split())
    if required := _REQUIRED.search(output):
        return required[0]
    lines = (_LOGGED.sub("", output).strip() or output).splitlines()
    return lines[-1].strip() if lines else "no output"


def runner(
    env: Mapping[str, str] | None = None, wrap: Callable[[Sequence[str]], list[str]] = list
) -> PlannerRunner:
    """Runs commands with an environment (or this process's), after ``wrap`` changed them: clients
    of a pool can need both. The planner itself looks for HTCondor's programs on PATH."""

    def run(command: Sequence[str]) -> Finished:
        done = subprocess.run(
            wrap(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=env,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run
