"""What a run of a job left in its files, more exactly than the event log: its record, its
transfers, its last words.

Two kinds of record are read from a job's standard output: the line that the embedded planner's
wrapper prints,

    adon-job-record: {"job": …, "start": …, "end": …, "exitcode": 0, "inputs": {"lfn": bytes}, …}

and the YAML document of pegasus-kickstart, which the real planner's jobs write.

pegasus-exitcode renames ``<job>.out`` and ``<job>.err`` of a finished run to ``….000`` and so on,
both with the same number. Which of them belong to a run is told by the times in its record, or else
by when they were last written; in a copy without times by their numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from monitors.workflows.logs import kickstart, transferlog
from monitors.workflows.logs.kickstart import JobRecord
from monitors.workflows.logs.transferlog import Summary, TransferAttempt, summaries
from monitors.workflows.planned.foreign_files import end_of, exists
from monitors.workflows.planned.job_files import OUR_RECORD, PlannedTask
from monitors.workflows.planned.submit_dir import TRANSFERS, PlannedJob

_MOST_RENAMED = 1000  # three digits
_CLOCK_S = 2.0  # how far clocks and whole-second event times may disagree
TAIL_BYTES = 4096  # of what a job said that are kept
_READ_BYTES = 1 << 20
_CLUSTER_BYTES = 1 << 26  # records of ten thousand tasks
_FAILED_TASKS = 10  # of which is kept what they said
_FILE_CLOCK_S = 3.0  # clocks of submit host and file system; some count whole seconds
_MULTIPART = ".multipart"
_FATAL = "[FATAL ERROR]"
_PLANNER_LINE = re.compile(r"\S+ \S+ \w+: \[(?:DEBUG|INFO|CONFIG)\]")


def is_of(record: JobRecord, started: float, ended: float) -> bool:
    """Whether a record is of the run between two event times (Unix seconds)."""
    return record.start >= started - _CLOCK_S and record.end <= ended + _CLOCK_S


def versions(path: Path) -> Iterator[Path]:
    """A job's file, then those that pegasus-exitcode renamed it to, newest first. All are there
    when they are looked for, but need not be any more when they are opened."""
    yield path
    # Only now: what is renamed while the first is opened is found here. Names are tried, for the
    # folder may hold the files of ten thousand jobs.
    renamed = []
    for number in range(_MOST_RENAMED):
        version = path.with_name(f"{path.name}.{number:03d}")
        if not exists(version):
            break
        renamed.append(version)
    yield from reversed(renamed)


def records_in(text: str, tasks: Sequence[PlannedTask] = ()) -> list[JobRecord]:
    """All whole records in a job's output: lines of the embedded planner's, then documents. Of a
    clustered job with these ``tasks``, each with the transformation and the id of its task."""
    records = [_from_line(line) for line in text.splitlines() if line.startswith(OUR_RECORD)]
    records += kickstart.invocations(text, {task.number: task.id for task in tasks})
    names = {task.id: task.transformation for task in tasks}
    return [
        record
        if record.transformation or record.task not in names
        else replace(record, transformation=names[record.task])
        for record in records
        if record is not None
    ]


def _from_line(line: str) -> JobRecord | None:
    try:
        data = json.loads(line[len(OUR_RECORD) :])
        record = JobRecord(
            start=float(data["start"]),
            end=float(data["end"]),
            exitcode=int(data["exitcode"]),
            source="job record",
            host=str(data.get("host", "")),
            cpu_s=float(data["cpu_s"]) if data.get("cpu_s") is not None else None,
            inputs=_sizes(data.get("inputs")),
            outputs=_sizes(data.get("outputs")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None  # torn or foreign: it is a program's output, anything may stand there
    return record if record.start <= record.end < float("inf") else None


def _sizes(data: Any) -> dict[str, int]:
    return {
        str(lfn): int(size)
        for lfn, size in (data or {}).items()
        if isinstance(size, int | float) and size >= 0
    }


@dataclass(frozen=True, slots=True)
class JobOutput:
    """``records`` of the run, of a clustered job one for each task; ``moved`` what
    ``pegasus-transfer`` told of the files it moved, or else ``logged`` what it logged; ``stderr``
    the end of what the job complained; ``output`` the file of its output, where one was found."""

    records: Sequence[JobRecord] = ()
    moved: Sequence[TransferAttempt] = ()
    logged: Sequence[Summary] = ()
    stderr: str = ""
    output: Path | None = None

    @property
    def span(self) -> tuple[float, float] | None:
        """From the start of the first program to the end of the last (Unix seconds); None where
        nothing tells."""
        if not self.records:
            return None
        return min(r.start for r in self.records), max(r.end for r in self.records)

    @property
    def work_s(self) -> float | None:
        """How long that is; None where nothing tells."""
        return None if self.span is None else self.span[1] - self.span[0]


@dataclass(frozen=True, slots=True)
class _Run:
    """Between two event times (Unix seconds). ``number`` counts from 0, where the files' times do
    not say of which run they are, else None."""

    started: float
    ended: float
    number: int | None

    def has_written(self, path: Path, first: Path) -> bool:
        """Whether a file is of this run, of those that :func:`versions` gives for ``first``."""
        try:
            written = path.stat().st_mtime
        except (OSError, ValueError):
            return False
        if self.number is None or written <= self.ended + _FILE_CLOCK_S:
            return self.started - _FILE_CLOCK_S <= written <= self.ended + _FILE_CLOCK_S
        renamed = first.with_name(f"{first.name}.{self.number:03d}")
        return path == (renamed if exists(renamed) else first)


def read_output(
    job: PlannedJob, started: float, ended: float, *, complained: bool, number: int
) -> JobOutput:
    """What a run between two event times (Unix seconds) left, the ``number``-th of its job from 0;
    ``stderr`` where ``complained``."""
    if job.output is None or not started:
        return JobOutput()
    most_bytes = _CLUSTER_BYTES if job.is_clustered else _READ_BYTES
    run = _Run(started, ended, number if _is_copy(job.output, ended) else None)
    text, output, records = _output_of(job.output, run, most_bytes, job.tasks)
    ending = output.name[len(job.output.name) :] if output is not None else ""
    moved = _moved(job.output, text, started, ended)
    logged = [] if moved or job.kind not in TRANSFERS else summaries(text)
    stderr = ""
    if complained:
        stderr = _of_programs(records) or _complaint(job, text, ending, run)
    return JobOutput(records, moved, logged, stderr, output)


def _of_programs(records: Sequence[JobRecord]) -> str:
    """What the programs that failed complained of, the end of each where it is too long."""
    failed = [record for record in records if record.exitcode and record.stderr.strip()][
        :_FAILED_TASKS
    ]
    words = [tail(record.stderr.strip(), TAIL_BYTES // len(failed)) for record in failed]
    if len(failed) > 1:
        words = [f"{record.task}: {text}" for record, text in zip(failed, words, strict=True)]
    return tail("\n".join(words))


def _output_of(
    output: Path, run: _Run, most_bytes: int, tasks: Sequence[PlannedTask]
) -> tuple[str, Path | None, list[JobRecord]]:
    """The run's output, the file that it is in, and the records in it."""
    aged: tuple[str, Path | None] = ("", None)
    for path in versions(output):
        text = end_of(path, most_bytes)
        records = [
            record for record in records_in(text, tasks) if is_of(record, run.started, run.ended)
        ]
        if records:
            return text, path, records
        if (text > aged[0] == "" or aged[1] is None) and run.has_written(path, output):
            aged = (text, path)
    return *aged, []


def _moved(output: Path, text: str, started: float, ended: float) -> list[TransferAttempt]:
    """What the run's records of transfers say; of other runs of the job there may be more."""
    transfers = transferlog.parse(text) if "transfer_attempts" in text else []
    folder = output.with_suffix(_MULTIPART)
    try:
        if not transfers and folder.is_dir():
            transfers = transferlog.read_dir(folder, started - _FILE_CLOCK_S)
    except (OSError, ValueError):
        return []
    # ``start`` is in whole seconds.
    return [
        transfer
        for transfer in transfers
        if started - _FILE_CLOCK_S <= transfer.start <= ended + _FILE_CLOCK_S
    ]


def _complaint(job: PlannedJob, text: str, ending: str, run: _Run) -> str:
    """Of a job whose program did not fail, or whose records are lost: what stands in the error
    file, such as PegasusLite's own words, else in the last document of kickstart."""
    if (error := job.error) is not None:
        for path in versions(error):
            same = path.name[len(error.name) :] == ending and bool(text)
            if (same or run.has_written(path, error)) and (
                words := end_of(path, 4 * TAIL_BYTES).strip()
            ):
                return tail(words)
    if words := kickstart.standard_error(text).strip():
        return tail(words)
    if kickstart.is_recorded(text):
        return ""
    return tail("\n".join(x for x in text.splitlines() if not x.startswith(OUR_RECORD)).strip())


def planner_error(log: Path) -> str:
    """Why pegasus-plan could not plan a workflow inside another, from the newest of its logs; ""
    where there is none, or it does not say."""
    for path in (*list(versions(log))[1:], log):
        if text := end_of(path):
            about = text[text.rfind(_FATAL) :] if _FATAL in text else ""
            lines = (line for line in about.splitlines() if not _PLANNER_LINE.match(line))
            return tail("\n".join(lines))
    return ""


def tail(text: str, most_bytes: int = TAIL_BYTES) -> str:
    """The last bytes of a text, from the beginning of a line where there is one, without characters
    that are for terminals."""
    kept = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
    data = kept.encode(errors="replace")
    if len(data) > most_bytes:
        data = data[-most_bytes:]
        _, line_end, rest = data.partition(b"\n")
        data = rest if line_end and rest else data
    return data.decode(errors="ignore")


def _is_copy(output: Path, ended: float) -> bool:
    """Whether a job's files lost their times, as in a directory that was unpacked elsewhere: its
    submit file looks newer than the job's end (Unix seconds)."""
    try:
        return output.with_suffix(".sub").stat().st_mtime > ended + _FILE_CLOCK_S
    except (OSError, ValueError):
        return False
