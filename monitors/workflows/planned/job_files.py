"""A submit directory as Pegasus lays it out, and the files of one job, seen from a hook.

    braindump.yml          wf_uuid, dag, …: one ``key: "value"`` to a line
    <wf>-0.dag             JOB <job> <dir>/<job>.sub
    <dir>/<job>.in         the transfer list of a transfer job; the tasks of a clustered job
    <dir>/<job>.sub        its submit file: a command, or an attribute (``+x``), to a line
    <dir>/<job>.adon.json  what the pre-job hook asked for and got (ours)
    adon-hooks.jsonl       every decision, warning and result, one JSON line each (ours)
    adon-sizes.jsonl       sizes of files that jobs wrote: {"lfn", "bytes"} (ours)

Standard library only. Nothing here is half-written: JSON files are renamed into place, journal
lines go out in one ``write`` to a file opened for appending.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from monitors.workflows.planned.foreign_files import open_plain_file, read_bytes, read_text
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import whole_bytes

HOOK_JOURNAL = "adon-hooks.jsonl"
SIZE_JOURNAL = "adon-sizes.jsonl"
OUR_RECORD = "adon-job-record:"  # begins the line that the planner's wrapper prints of a job
DECISION_ENDING = ".adon.json"
TRANSFER = "pegasus::transfer"  # the transformation of Pegasus's own transfer jobs
LOCAL_UNIVERSES = ("local", "scheduler")  # run on the submit host itself
WORKFLOW, JOB = "PEGASUS_WF_UUID", "PEGASUS_DAG_JOB_ID"  # name each job to its own processes
_MOST_BYTES = 1 << 20  # of a submit file; Pegasus writes a few thousand
# The planner's comment above each task: number, transformation, id.
_TASK = re.compile(r"^#@[ \t]+(\d+)[ \t]+(\S+)[ \t]+(\S+)[ \t]*$", re.MULTILINE)


def braindump(submit_dir: Path) -> dict[str, str]:
    """The keys of ``braindump.yml``. Raises InputError where it cannot be read."""
    path = submit_dir / "braindump.yml"
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: {problem}, expected Pegasus's braindump.yml") from None
    if text.startswith("{"):  # the same as JSON, which is YAML, too
        with suppress(ValueError, AttributeError, RecursionError):
            return {key: str(value) for key, value in json.loads(text).items() if value is not None}
    out = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and not key.startswith((" ", "#", "-")):
            out[key.strip()] = _unquoted(value.strip())
    return out


def _unquoted(value: str) -> str:
    if len(value) < 2 or value[0] != value[-1] or value[0] not in "\"'":
        return value
    if value[0] == '"':
        with suppress(ValueError):
            return str(json.loads(value))
    return value[1:-1]


def dag_file(submit_dir: Path, dump: Mapping[str, str]) -> Path:
    """The .dag that the braindump names. Raises InputError where it names none."""
    name = dump.get("dag")
    if not name:
        raise InputError(f"{submit_dir}/braindump.yml: found no key dag, expected the .dag's name")
    return submit_dir / name


class PlannedFiles:
    """The files of one job of the workflow in ``submit_dir``: each is read once, when it is first
    needed. What is read raises InputError where the directory is none of Pegasus's, or its DAG
    cannot be read or does not know the job."""

    def __init__(self, submit_dir: Path, job: str) -> None:
        self.submit_dir, self.job = submit_dir, job

    @cached_property
    def braindump(self) -> dict[str, str]:
        """What Pegasus noted of the workflow."""
        return braindump(self.submit_dir)

    @property
    def workflow(self) -> str:
        """Its UUID."""
        return self.braindump.get("wf_uuid", "")

    @cached_property
    def dag(self) -> Path:
        """The workflow's DAG."""
        return dag_file(self.submit_dir, self.braindump)

    @property
    def cache(self) -> Path:
        """The workflow's ``.cache``."""
        return self.dag.with_suffix(".cache")

    @cached_property
    def _dag_text(self) -> bytes:
        try:
            return read_bytes(self.dag)
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
            problem = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{self.dag}: cannot be read: {problem}") from None

    @cached_property
    def _folder(self) -> Path:
        text, mark = self._dag_text, b"JOB " + self.job.encode() + b" "
        at = 0 if text.startswith(mark) else text.find(b"\n" + mark) + 1
        if at == 0 and not text.startswith(mark):
            raise InputError(f"{self.dag}: found no line 'JOB {self.job} …'")
        rest = text[at + len(mark) :].split(None, 1)
        if not rest:
            raise InputError(f"{self.dag}: line 'JOB {self.job}' names no submit file")
        return self.submit_dir / Path(os.fsdecode(rest[0])).parent

    def file(self, ending: str) -> Path:
        """``<dir>/<job><ending>``, where ``<dir>`` is the folder on the job's line in the DAG."""
        return self._folder / (self.job + ending)

    @property
    def decision(self) -> Path:
        """What PRE asked for and got."""
        return self.file(DECISION_ENDING)

    @cached_property
    def submit_text(self) -> str:
        """The text of its submit file; empty where it cannot be read."""
        return submit_text(self.file(".sub"))

    @cached_property
    def parents(self) -> list[str]:
        """The jobs that it waits for, where the DAG has a line for each; nothing else does."""
        line = rb"^PARENT (\S+) CHILD %s$" % re.escape(self.job.encode())
        return [os.fsdecode(name) for name in re.findall(line, self._dag_text, re.M)]

    def defers(self, status: int) -> bool:
        """Whether DAGMan runs its PRE again later where it leaves with ``status``: its line in the
        DAG is ``SCRIPT DEFER <status> <seconds> PRE <job> …``."""
        line = rb"^[ \t]*SCRIPT[ \t]+DEFER[ \t]+%d[ \t]+\d+[ \t]+PRE[ \t]+%s[ \t]" % (
            status,
            re.escape(self.job.encode()),
        )
        return re.search(line, self._dag_text, re.I | re.M) is not None


def write_json(path: Path, data: object) -> None:
    """Write ``data`` so that readers, and whoever kills us, see the old file or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o666), "w", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``; empty where there is none or it is no object."""
    try:
        data = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):  # missing, or written by someone else
        return {}
    return data if isinstance(data, dict) else {}


def append_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append one JSON line per record, all in a single write, so that lines never mix."""
    text = "".join(json.dumps(record) + "\n" for record in records)
    if not text:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    out = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        os.write(out, text.encode())
    finally:
        os.close(out)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a journal; lines that are no JSON object are passed over."""
    try:
        lines = read_text(path, "replace").splitlines()
    except OSError:
        return []
    out = []
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # the disk was full, or the machine went down
            continue
        if isinstance(record, dict):
            out.append(record)
    return out


def known_sizes(submit_dir: Path) -> dict[str, int]:
    """Bytes by lfn, from the journal of sizes; the last line counts."""
    sizes = {}
    for record in read_lines(submit_dir / SIZE_JOURNAL):
        lfn, n_bytes = record.get("lfn"), record.get("bytes")
        if isinstance(lfn, str) and isinstance(n_bytes, int) and n_bytes >= 0:
            sizes[lfn] = n_bytes
    return sizes


def warnings(submit_dir: Path) -> list[str]:
    """What the hooks could not do, in their own words, in the order it happened."""
    return [
        f"{record.get('job', '')}: {record.get('reason', '')}"
        for record in read_lines(submit_dir / HOOK_JOURNAL)
        if record.get("event") == "warning"
    ]


class PlannedTask(NamedTuple):
    """One task of a clustered job: its ``number`` in there, its ``id`` in the abstract workflow."""

    number: str
    transformation: str
    id: str


def clustered_tasks(submit_file: Path) -> tuple[PlannedTask, ...]:
    """What a clustered job is given to run, by its input or by the PegasusLite script that holds
    the same; nothing where neither can be read."""
    for ending in (".in", ".sh"):
        with suppress(OSError):
            text = read_text(submit_file.with_suffix(ending), "replace")
            if tasks := _TASK.findall(text):
                return tuple(PlannedTask(*task) for task in tasks)
    return ()


def submit_text(path: Path) -> str:
    """The text of a submit file; empty where it cannot be read."""
    try:
        with os.fdopen(open_plain_file(path), "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return ""


def attribute(text: str, name: str) -> str:
    """The value of an attribute of the job's ad without its quotes; empty where it is not set."""
    return _last(text, rf"(?:\+|MY\.){re.escape(name)}")


def command(text: str, name: str) -> str:
    """The value of a submit command; empty where it is not set."""
    return _last(text, re.escape(name))


def _last(text: str, name: str) -> str:
    """As condor_submit: the last one counts, upper and lower case are one."""
    values = re.findall(rf"^[ \t]*{name}[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.I | re.M)
    return values[-1].strip("\"'") if values else ""


def input_sizes(path: Path) -> dict[str, int]:
    """The sizes in ``<job>.in.meta``, by lfn; empty where there is none that can be read."""
    try:
        data = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    sizes = {}
    for item in data if isinstance(data, list) else []:
        attributes = item.get("_attributes") if isinstance(item, dict) else None
        if isinstance(attributes, dict) and isinstance(lfn := item.get("_id"), str):
            size = whole_bytes(str(attributes.get("size", "")))
            if size is not None:
                sizes[lfn] = size
    return sizes
