"""What is written into a submit directory, in the form Pegasus gives it: submit files, the .dag,
braindump, properties, metadata."""

from __future__ import annotations

import json
import math
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from monitors.workflows.planned.transferlist import Transfer
from network_provisioner.base.errors import InputError
from pegasus_hooks.planner.model import ExecutableJob, Options, PlannedKind
from pegasus_hooks.planner.programs import TRANSFER, ExecutableCatalog
from pegasus_hooks.prepost.hookscripts import safe_path
from pegasus_hooks.prepost.keepsizes import EMBEDDED
from pegasus_hooks.prepost.prejob import DEFER_STATUS, MULTIPART_ENDING
from pegasus_hooks.prepost.tuning import AT_ONCE
from site_selector.catalogs.entries import SUBMIT_SITE
from site_selector.catalogs.fields import EXPECTED_PRIORITY, given_priority, is_priority
from site_selector.catalogs.sources import Sources
from site_selector.catalogs.workflow import Workflow

JOB_RUNNER = "adon-jobrun.py"
TASK_ENDING = ".task"
_RULE = "#" * 70
_NUMBER = re.compile(r"\s*[+-]?[\d.]+([eE][+-]?\d+)?\s*")
_PATH = "/usr/local/bin:/usr/bin:/bin"
_HELD_TOO_LONG_S = 1800
# `+pegasus_job_class` of Pegasus's planner
_CLASSES = {
    PlannedKind.COMPUTE: 1, PlannedKind.STAGE_IN: 2, PlannedKind.STAGE_OUT: 3,
    PlannedKind.STAGE_INTER: 5, PlannedKind.CREATE_DIR: 6, PlannedKind.CLEANUP: 8,
}  # fmt: skip
_XFORMATIONS = {
    PlannedKind.CREATE_DIR: "pegasus::dirmanager",
    PlannedKind.CLEANUP: "pegasus::cleanup",
}
_PRIORITIES = {
    PlannedKind.CREATE_DIR: 800, PlannedKind.STAGE_IN: 700, PlannedKind.STAGE_INTER: 700,
    PlannedKind.STAGE_OUT: 900, PlannedKind.CLEANUP: 1000,
}  # fmt: skip
# pegasus profiles that are resource requests: key, submit command, unit
_RESOURCES = (
    ("cores", "request_cpus", ""), ("memory", "request_memory", " MB"),
    ("gpus", "request_gpus", ""), ("diskspace", "request_disk", " MB"),
)  # fmt: skip
JOBSTATE_LOG, DAGMAN_CONFIG = "jobstate.log", "dagman.config"
PLANNER_VERSION = "ADON embedded planner (no Pegasus on this machine)"
PROPERTIES = "pegasus.properties"
KINDS = ("site", "replica", "transformation")
CONFIGURATION = "sharedfs"


@dataclass(frozen=True, slots=True)
class SubmitFacts:
    """What every submit file of a run says."""

    label: str
    wf_uuid: str
    timestamp: str
    submit_dir: Path
    transfer_tool: Path
    programs: ExecutableCatalog
    options: Options
    version: str

    @property
    def name(self) -> str:
        """Pegasus's name of the workflow with its index, ``soykb-0``."""
        return f"{self.label}-0"


def priority_of(job: ExecutableJob) -> str:
    """The one that the job was given, else Pegasus's: what frees or feeds sites first, then deeper
    levels. Raises InputError for a number that HTCondor cannot hold."""
    given = given_priority(job.profiles)
    if given is None:
        return str(_PRIORITIES.get(job.kind, 10 * (job.level + 2)))
    if _NUMBER.fullmatch(given) and not is_priority(given):
        raise InputError(f"job {job.name}: priority: found {given!r}, expected {EXPECTED_PRIORITY}")
    return given.strip()


def submit_text(job: ExecutableJob, facts: SubmitFacts) -> str:
    """The submit file of ``job``. Raises InputError for paths that HTCondor could not carry."""
    local = _universe(job) == "local"
    base = facts.submit_dir / job.folder / job.name
    lines = {
        "stream_error": "false",
        "stream_output": "false",
        "environment": _environment(job, facts, local),
        "error": f"{base}.err",
        "input": f"{base}{TASK_ENDING if job.kind is PlannedKind.COMPUTE else '.in'}",
        "log": str(facts.submit_dir / f"{facts.name}.log"),
        "notification": "NEVER",
        "output": f"{base}.out",
        "periodic_release": "False",
        "periodic_remove": "(JobStatus == 5) && "
        f"((CurrentTime - EnteredCurrentStatus) > {_HELD_TOO_LONG_S})",
        "priority": priority_of(job),
        "submit_event_user_notes": f"pool:{job.site}",
        "universe": _universe(job),
        "wf_submit_dir": str(facts.submit_dir),
        # Where pegasus-transfer logs in to a zone, which no two jobs can do in one folder.
        **({"initialdir": _own_folder(job, facts)} if local and job.transfers else {}),
        **_program(job, facts, local),
    }
    lines |= _resources(job)
    for key, value in job.profiles.get("condor", {}).items():
        if key.lower() not in ("universe", "priority"):
            lines[key] = value
    text = [_RULE, "# WRITTEN BY ADON'S EMBEDDED PLANNER, IN THE FORM OF PEGASUS WMS",
            f"# DAG : {facts.label}, Index = 0, Count = null",
            f"# SUBMIT FILE NAME : {job.name}.sub", _RULE]  # fmt: skip
    text += [f"{key} = {value}" for key, value in sorted(lines.items())]
    text += [f"+{key} = {value}" for key, value in _attributes(job, facts).items()]
    return "\n".join([*text, "queue", _RULE, "# END OF SUBMIT FILE", _RULE]) + "\n"


def quoted_words(words: list[str], what: str) -> str:
    """HTCondor's new syntax for arguments and environment: the whole in double quotes, words with
    blanks or quotes in single ones. Raises InputError for a line break, which it cannot carry."""
    out = []
    for word in words:
        if "\n" in word or "\r" in word:
            raise InputError(f"{what}: found a line break in {word!r}, expected one line")
        quoted = word.replace("'", "''").replace('"', '""')
        plain = bool(word) and not set(word) & set(" \t'")
        out.append(quoted if plain else f"'{quoted}'")
    return '"' + " ".join(out) + '"'


def _universe(job: ExecutableJob) -> str:
    """What moves files for others runs at the submit host itself; at a site, the site's profile."""
    if job.site == SUBMIT_SITE:
        if job.kind is not PlannedKind.COMPUTE:
            return "local"
        return job.profiles.get("condor", {}).get("universe", "local")
    return job.profiles.get("condor", {}).get("universe", "vanilla")


def _program(job: ExecutableJob, facts: SubmitFacts, local: bool) -> dict[str, str]:
    """Executable, arguments, and what HTCondor carries to the site beside them.

    The submit directory need not be visible at the site: HTCondor brings lists and task
    descriptions as standard input and takes the output back, nothing else. Where the site's
    ``condor: should_transfer_files: NO`` says that it is visible, HTCondor carries nothing, and a
    job starts some seconds earlier (25.14 waits for its own transfers by polling).
    """
    at_hand = local or not _carries(job)
    python = job.profiles.get("env", {}).get("PEGASUS_PYTHON", facts.options.python)
    lines = {"transfer_executable": "false"}
    if not at_hand:
        lines |= {
            "should_transfer_files": "YES",
            "when_to_transfer_output": "ON_EXIT",
            "+TransferOutput": '""',
        }
    if job.kind is PlannedKind.COMPUTE:
        runner = facts.submit_dir / JOB_RUNNER
        if not at_hand:
            lines["transfer_input_files"] = str(runner)
        arguments = ["-I", "-S", str(runner) if at_hand else JOB_RUNNER]
        return lines | {"executable": python, "arguments": quoted_words(arguments, job.name)}
    options = facts.options
    arguments = ["--threads", str(options.transfer_threads)]
    arguments += ["--max-attempts", str(options.transfer_attempts)]
    installed = facts.programs.find(TRANSFER, job.site)
    if installed is not None and not installed.staged:
        executable = installed.pfn
    else:
        executable = python
        arguments = [str(facts.transfer_tool), *arguments]
    return lines | {"executable": executable, "arguments": quoted_words(arguments, job.name)}


def _carries(job: ExecutableJob) -> bool:
    """Whether HTCondor has to bring files to the site, because it does not see ours."""
    should_transfer = job.profiles.get("condor", {}).get("should_transfer_files", "YES")
    return should_transfer.strip().upper() != "NO"


def _environment(job: ExecutableJob, facts: SubmitFacts, local: bool) -> str:
    values = {
        "LANG": "C.UTF-8",
        "PATH": _PATH,
        **({} if job.kind is PlannedKind.COMPUTE else {"PYTHONPATH": str(AT_ONCE)}),
        **job.profiles.get("env", {}),
        "CONDOR_JOBID": "$(cluster).$(process)",
        "PEGASUS_WF_UUID": facts.wf_uuid,
        "PEGASUS_WF_LABEL": facts.label,
        "PEGASUS_DAG_JOB_ID": job.name,
        "PEGASUS_SITE": job.site,
    }
    if local and job.transfers:
        values["PEGASUS_MULTIPART_DIR"] = _own_folder(job, facts)
    return quoted_words([f"{k}={v}" for k, v in values.items()], f"job {job.name}: environment")


def _own_folder(job: ExecutableJob, facts: SubmitFacts) -> str:
    return f"{facts.submit_dir / job.folder / job.name}{MULTIPART_ENDING}"


def _resources(job: ExecutableJob) -> dict[str, str]:
    if job.kind is not PlannedKind.COMPUTE:
        return {}
    wishes = job.profiles.get("pegasus", {})
    out = {}
    for key, command, unit in _RESOURCES:
        value = wishes.get(key)
        if value is None:
            continue
        try:
            amount = math.ceil(float(value))
        except (ValueError, OverflowError):
            raise InputError(
                f"job {job.name}: profile pegasus: {key}: found {value!r}, expected a number"
            ) from None
        out[command] = f"{amount}{unit}"
    return out


def _attributes(job: ExecutableJob, facts: SubmitFacts) -> dict[str, str]:
    task = job.task
    xformation = task.transformation if task else _XFORMATIONS.get(job.kind, TRANSFER)
    values = {
        "pegasus_generator": "ADON embedded planner",
        "pegasus_root_wf_uuid": facts.wf_uuid,
        "pegasus_wf_uuid": facts.wf_uuid,
        "pegasus_version": facts.version,
        "pegasus_wf_name": facts.name,
        "pegasus_wf_app": "none",
        "pegasus_wf_time": facts.timestamp,
        "pegasus_wf_xformation": xformation,
        "pegasus_wf_dax_job_id": task.id if task else "null",
        "pegasus_wf_dag_job_id": job.name,
        "pegasus_site": job.site,
    }
    texts = {key: '"' + value.replace('"', '\\"') + '"' for key, value in values.items()}
    return texts | {"pegasus_job_class": str(_CLASSES[job.kind]), "pegasus_cluster_size": "1"}


def script_words(python: str, script: Path, config: Path, macros: list[str]) -> list[str]:
    """The words of a SCRIPT line, which DAGMan splits at blanks and cannot quote."""
    command = [python, "-I", "-S", str(script), "--config", str(config)]
    return [safe_path(word, "hook script") for word in command] + macros


def category_of(job: ExecutableJob) -> str | None:
    """Pegasus's DAGMan categories, which MAXJOBS lines bound."""
    own: Mapping[str, str] = job.profiles.get("dagman", {})
    if job.kind is PlannedKind.COMPUTE:
        return own.get("category")
    return {
        PlannedKind.STAGE_IN: "stagein",
        PlannedKind.STAGE_INTER: "stageinter",
        PlannedKind.STAGE_OUT: "stageout",
    }.get(job.kind)


def write_dag(
    directory: Path,
    file_name: str,
    jobs: Iterable[ExecutableJob],
    scripts: Mapping[str, tuple[list[str] | None, list[str] | None]],
    options: Options,
) -> None:
    """Write ``file_name`` into ``directory``, and DAGMan's settings for this workflow beside it.

    ``scripts`` gives PRE and POST of a job as words, None for none. DAGMan runs a PRE that leaves
    with DEFER_STATUS again after ``defer_s`` seconds of the options.
    """
    jobs = list(jobs)
    lines = [f"JOBSTATE_LOG {JOBSTATE_LOG}"]
    if options.dagman_config:
        settings = "\n".join(f"{key} = {value}" for key, value in options.dagman_config.items())
        (directory / DAGMAN_CONFIG).write_text(settings, encoding="utf-8")
        lines.insert(0, f"CONFIG {DAGMAN_CONFIG}")
    lines += [f"MAXJOBS {category} {most}" for category, most in options.max_jobs.items()]
    for job in jobs:
        lines += ["", *_dag_lines(job, *scripts.get(job.name, (None, None)), options)]
    lines.append("")
    lines += [f"PARENT {parent} CHILD {j.name}" for j in jobs for parent in sorted(j.parents)]
    (directory / file_name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _dag_lines(
    job: ExecutableJob, pre: list[str] | None, post: list[str] | None, options: Options
) -> Iterator[str]:
    name, retries = job.name, job.profiles.get("dagman", {}).get("retry", "")
    yield f"JOB {name} {job.folder}/{name}.sub"
    yield f'VARS {name} My.DAGNodeRetry="$(RETRY)"'
    yield f"RETRY {name} {int(retries) if retries.isdecimal() else options.retries}"
    if pre:
        defer = "" if options.defer_s is None else f"DEFER {DEFER_STATUS} {options.defer_s} "
        yield f"SCRIPT {defer}PRE {name} {' '.join(pre)}"
    if post:
        yield f"SCRIPT POST {name} {' '.join(post)}"
    priority = priority_of(job)
    if is_priority(priority):  # HTCondor evaluates an expression; then the submit file's holds
        yield f"PRIORITY {name} {int(priority)}"
    if category := category_of(job):
        yield f"CATEGORY {name} {category}"


def braindump_text(
    facts: SubmitFacts, workflow: Workflow, sources: Sources, output_site: str
) -> str:
    """``braindump.yml``: what Pegasus's own tools and the hooks need to know of a run."""
    base = facts.submit_dir.parents[3]
    values = {
        "user": facts.options.user,
        "grid_dn": None,
        "submit_hostname": socket.gethostname(),
        "root_wf_uuid": facts.wf_uuid,
        "wf_uuid": facts.wf_uuid,
        "dax": str(sources.workflow.absolute()),
        "dax_label": facts.label,
        "dax_index": "0",
        "dax_version": str(workflow.document.root.get("pegasus", "")),
        "pegasus_wf_name": facts.name,
        "timestamp": facts.timestamp,
        "basedir": str(base),
        "submit_dir": str(facts.submit_dir),
        "planner": EMBEDDED,
        "planner_version": PLANNER_VERSION,
        "pegasus_build": f"pegasus-wms.worker {facts.version}",
        "planner_arguments": f"--output-sites {output_site} --dir {base}",
        "jsd": "jobstate.log",
        "rundir": str(facts.submit_dir.relative_to(base)),
        "bindir": str(Path(facts.options.python).parent),
        "vogroup": "pegasus",
        "uses_pmc": "false",
        "properties": PROPERTIES,
        "app": "none",
        "condor_log": f"{facts.name}.log",
        "dag": f"{facts.name}.dag",
        "type": "dag",
        "notify": f"{facts.name}.notify",
    }
    return "".join(
        f"{key}: {'null' if value is None else json.dumps(value)}\n"
        for key, value in values.items()
    )


def properties_text(facts: SubmitFacts, files: Iterable[str]) -> str:
    """The properties that this plan amounts to, with the catalogs that are among its ``files``."""
    lines = ["# The same settings for pegasus-plan"]
    for kind in KINDS:
        for name in files:
            if name.startswith(f"catalogs/{kind}s."):
                lines.append(f"pegasus.catalog.{kind}.file={facts.submit_dir / name}")
    lines += [f"pegasus.data.configuration={CONFIGURATION}", "pegasus.transfer.links=true"]
    lines.append(f"pegasus.transfer.threads={facts.options.transfer_threads}")
    return "\n".join(lines) + "\n"


def metadata_text(facts: SubmitFacts, jobs: Mapping[str, ExecutableJob]) -> str:
    """``<wf>.metadata``: the sizes declared in each job's list."""
    sizes = {
        name: {
            f"{entry.lfn}.size": str(entry.size_bytes)
            for entry in job.entries
            if isinstance(entry, Transfer) and entry.size_bytes is not None
        }
        for name, job in jobs.items()
    }
    data = {
        "root_workflow_uuid": facts.wf_uuid,
        "workflow_uuid": facts.wf_uuid,
        "wf_metadata": {},
        "graph": {"jobs": sizes},
    }
    return json.dumps(data, indent=2) + "\n"
