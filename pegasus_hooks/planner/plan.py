"""From abstract workflow and site mapping to a submit directory, all of it or nothing.

The directory is made under a hidden name and renamed, so that ``run0001`` is whole whenever it is
there; where another planner took the number meanwhile, the next one is used.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path

from monitors.workflows.planned import transferlist
from network_provisioner.base.errors import InputError, MissingError
from pegasus_hooks.planner import jobrun
from pegasus_hooks.planner.layout import lay_out
from pegasus_hooks.planner.model import ExecutableJob, Options, PlannedWorkflow
from pegasus_hooks.planner.programs import (
    OWN_POST,
    ExecutableCatalog,
    refuse_what_cannot_be_planned,
)
from pegasus_hooks.planner.staging import RunPaths
from pegasus_hooks.planner.submitfile import (
    CONFIGURATION,
    JOB_RUNNER,
    KINDS,
    TASK_ENDING,
    SubmitFacts,
    braindump_text,
    metadata_text,
    properties_text,
    script_words,
    submit_text,
    write_dag,
)
from pegasus_hooks.prepost.hookscripts import safe_path
from pegasus_hooks.prepost.prejob import MULTIPART_ENDING
from site_selector.catalogs.documents import settled
from site_selector.catalogs.sources import Sources
from site_selector.inputs import Inputs

PLANNER_NAME = "embedded"
_HOOKS = Path(__file__).resolve().parents[1]
_PRE = ["$JOB", "$RETRY", "$MAX_RETRIES"]
_POST = ["$JOB", "$RETRY", "$RETURN"]
_MAX_RUNS = 10_000


def plan(
    inputs: Inputs,
    sources: Sources,
    mapping: Mapping[str, str],
    base_dir: Path,
    output_site: str,
    hooks: Path | None = None,
    options: Options | None = None,
    priorities: Mapping[str, int] | None = None,
) -> PlannedWorkflow:
    """Write ``<base_dir>/<user>/pegasus/<workflow>/run0001`` (or the next free number).

    ``mapping`` gives every job its site, ``priorities`` those jobs theirs that have none of their
    own; ``hooks`` is the hooks' configuration file (None: no
    hooks). Raises InputError for what cannot be planned and where the directory cannot be written,
    MissingError without pegasus-transfer; nothing half-made stays behind.
    """
    options = options or Options()
    refuse_what_cannot_be_planned(inputs.workflow)
    _check_output_site(inputs, output_site)
    if sources.staging_site:
        raise InputError(
            f"staging site {sources.staging_site}: the embedded planner stages files where jobs "
            "run, expected no --staging-site, or a pegasus-plan on PATH"
        )
    configurations = {inputs.configuration(job, site) for job, site in mapping.items()}
    for configuration in sorted(configurations - {CONFIGURATION, ""}):
        raise InputError(
            f"data configuration {configuration}: the embedded planner knows {CONFIGURATION} "
            "alone, expected that (--data-configuration), or a pegasus-plan on PATH"
        )
    programs = ExecutableCatalog(inputs.sites, inputs.transformations)
    runs_folder = Path(options.user) / "pegasus" / inputs.workflow.name
    parent = Path(safe_path(str(base_dir.absolute() / runs_folder), "submit directory"))
    hooks = None if hooks is None else Path(safe_path(str(hooks.absolute()), "hooks config"))
    tool = transfer_tool()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(parent)
        for number in range(_next_run(parent), _MAX_RUNS):
            run = f"run{number:04d}"
            places = RunPaths(inputs.sites, f"{runs_folder}/{run}")
            jobs = lay_out(inputs, programs, mapping, places, output_site, options, priorities)
            facts = _facts(inputs, programs, parent / run, tool, options)
            draft = parent / f".{run}.{socket.gethostname()}.{os.getpid()}"
            try:
                _write(draft, facts, jobs, inputs, sources, output_site, hooks)
                if not _put(draft, parent / run):
                    continue
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            return PlannedWorkflow(
                inputs.workflow.name,
                facts.submit_dir,
                facts.submit_dir / f"{facts.name}.dag",
                facts.wf_uuid,
                PLANNER_NAME,
                jobs,
                "Planned by ADON's embedded planner, for machines without Pegasus: "
                f"{len(jobs)} jobs in {facts.submit_dir}",
            )
    except OSError as error:
        raise InputError(
            f"submit directory {parent}: cannot be written: {error.strerror}"
        ) from None
    raise InputError(f"submit directory {parent}: found {_MAX_RUNS} runs, expected a free number")


def _check_output_site(inputs: Inputs, output_site: str) -> None:
    if "," in output_site:
        raise InputError(f"output site {output_site!r}: expected one; pegasus-plan takes several")
    if output_site not in inputs.sites:
        raise InputError(
            f"output site {output_site!r}: not in the site catalog, which lists "
            + ", ".join(inputs.sites)
        )


def transfer_tool() -> Path:
    """``pegasus-transfer`` of the worker package, which has no entry point of its own."""
    spec = util.find_spec("Pegasus")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        tool = Path(folder) / "cli" / "pegasus-transfer.py"
        if tool.exists():
            return Path(safe_path(str(tool), "pegasus-transfer"))
    raise MissingError(
        "pegasus-transfer: not found in this Python; install it with 'pip install "
        "pegasus-wms.worker'"
    )


def _facts(
    inputs: Inputs, programs: ExecutableCatalog, submit_dir: Path, tool: Path, options: Options
) -> SubmitFacts:
    planned_at = time.time() if options.planned_at is None else options.planned_at
    return SubmitFacts(
        label=inputs.workflow.name,
        wf_uuid=options.wf_uuid or str(uuid.uuid4()),
        timestamp=datetime.fromtimestamp(planned_at, UTC).strftime("%Y%m%dT%H%M%S%z"),
        submit_dir=submit_dir,
        transfer_tool=tool,
        programs=programs,
        options=options,
        version=metadata.version("pegasus-wms.worker"),
    )


def _write(
    draft: Path,
    facts: SubmitFacts,
    jobs: Mapping[str, ExecutableJob],
    inputs: Inputs,
    sources: Sources,
    output_site: str,
    hooks: Path | None,
) -> None:
    (draft / "catalogs").mkdir(parents=True)
    files = {"workflow.yml": sources.workflow}
    for kind in KINDS:
        catalog = sources.catalog(kind)
        if catalog is not None:
            files[f"catalogs/{kind}s{catalog.suffix}"] = catalog
    for name, file in files.items():
        text = settled(file, "file of Pegasus", sources.variables)
        (draft / name).write_text(text, encoding="utf-8")
    shutil.copyfile(jobrun.__file__, draft / JOB_RUNNER)
    (draft / f"{facts.name}.notify").touch()
    (draft / f"{facts.name}.metadata").write_text(metadata_text(facts, jobs), encoding="utf-8")
    (draft / "pegasus.properties").write_text(properties_text(facts, files), encoding="utf-8")
    for job in jobs.values():
        _write_job(draft / job.folder, job, facts)
    scripts = {job.name: _scripts(job, facts.options, hooks) for job in jobs.values()}
    write_dag(draft, f"{facts.name}.dag", jobs.values(), scripts, facts.options)
    (draft / "braindump.yml").write_text(
        braindump_text(facts, inputs.workflow, sources, output_site), encoding="utf-8"
    )


def _write_job(folder: Path, job: ExecutableJob, facts: SubmitFacts) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{job.name}.sub").write_text(submit_text(job, facts), encoding="utf-8")
    if job.task is not None:
        task = {**asdict(job.task), "name": job.name, "site": job.site}
        (folder / f"{job.name}{TASK_ENDING}").write_text(json.dumps(task, indent=1) + "\n")
        return
    (folder / f"{job.name}.in").write_text(transferlist.dumps(job.entries), encoding="utf-8")
    if job.transfers:
        (folder / f"{job.name}{MULTIPART_ENDING}").mkdir()


def _scripts(
    job: ExecutableJob, options: Options, hooks: Path | None
) -> tuple[list[str] | None, list[str] | None]:
    """PRE and POST on transfer jobs alone, as by the route on ``pegasus::transfer``: a script costs
    its job a cycle of DAGMan's. A job's own POST is used instead of ours, as in Pegasus."""
    own = {key.lower(): value for key, value in job.profiles.get("dagman", {}).items()}
    if own.get("post") == OWN_POST:
        if not (path := own.get("post.path.user")):
            return None, None
        output = f"{job.folder}/{job.name}.out"
        return None, [path, *own.get("post.arguments", "").split(), output]
    if not job.transfers:
        return None, None
    if hooks is None:
        return None, [options.check] if options.check else None
    return (
        script_words(options.python, _HOOKS / "pre.py", hooks, _PRE),
        script_words(options.python, _HOOKS / "post.py", hooks, _POST),
    )


def _next_run(parent: Path) -> int:
    taken = [int(p.name[3:]) for p in parent.glob("run[0-9]*") if p.name[3:].isdecimal()]
    return max(taken, default=0) + 1


def _put(draft: Path, final: Path) -> bool:
    """Rename into place; False if someone else has the name by now."""
    if final.exists():
        return False
    try:
        draft.rename(final)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _remove_leftovers(parent: Path) -> None:
    """Drafts of planners of this machine that were killed."""
    ours = re.compile(rf"\.run\d{{4}}\.{re.escape(socket.gethostname())}\.(\d+)")
    for draft in parent.glob(".run*"):
        match = ours.fullmatch(draft.name)
        if match and not Path("/proc", match[1]).exists():
            shutil.rmtree(draft, ignore_errors=True)
