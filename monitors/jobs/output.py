"""Everything that one run of a job left in its files: its record, its transfers, its last words.

pegasus-exitcode renames ``<job>.out`` and ``<job>.err`` of a finished run to ``….000`` and so on,
both with the same number. Which of them belong to a run is told by the times in its record, or else
by when they were last written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monitors.logs import kickstart, transferlog
from monitors.logs.records import JobRecord, end_of, is_of, records_in, versions
from monitors.logs.submit_dir import TRANSFERS, PlannedJob
from monitors.logs.transferlog import Attempt as Moved
from monitors.logs.transfersummary import Summary, summaries

TAIL_BYTES = 4096  # of what a job said that are kept
_READ_BYTES = 1 << 20
_CLOCK_S = 3.0  # clocks of submit host and file system may differ, and some count whole seconds
_OUR_RECORD = "adon-job-record:"
_MULTIPART = ".multipart"


@dataclass(frozen=True, slots=True)
class Said:
    """``records`` of the run (a clustered job has one for each of its tasks), ``moved`` what
    ``pegasus-transfer`` told of the files it moved, or else ``logged`` what it logged; ``stderr``
    the end of what the job complained."""

    records: Sequence[JobRecord] = ()
    moved: Sequence[Moved] = ()
    logged: Sequence[Summary] = ()
    stderr: str = ""

    @property
    def record(self) -> JobRecord | None:
        """The last one."""
        return self.records[-1] if self.records else None


def said_by(job: PlannedJob, started: float, ended: float, *, complained: bool) -> Said:
    """What a run between two event times (Unix seconds) left; ``stderr`` where ``complained``."""
    if job.output is None or not started:
        return Said()
    text, ending, records = _output_of(job.output, started, ended)
    moved = _moved(job.output, text, started, ended)
    logged = [] if moved or job.kind not in TRANSFERS else summaries(text)
    stderr = _complaint(job, text, ending, started, ended) if complained else ""
    return Said(records, moved, logged, stderr)


def _output_of(output: Path, started: float, ended: float) -> tuple[str, str, list[JobRecord]]:
    """The run's output, what its name has more than ``output``, and the records in it."""
    aged = ("", "")
    for path in versions(output):
        text = end_of(path, _READ_BYTES)
        records = [one for one in records_in(text) if is_of(one, started, ended)]
        if records:
            return text, path.name[len(output.name) :], records
        if text and not aged[0] and _written_in(path, started, ended):
            aged = (text, path.name[len(output.name) :])
    return *aged, []


def _moved(output: Path, text: str, started: float, ended: float) -> list[Moved]:
    """What the run's records of transfers say; of other runs of the job there may be more."""
    found = transferlog.parse(text) if "transfer_attempts" in text else []
    folder = output.with_suffix(_MULTIPART)
    try:
        if not found and folder.is_dir():
            found = transferlog.read_dir(folder, started - _CLOCK_S)
    except (OSError, ValueError):
        return []
    # ``start`` is in whole seconds.
    return [one for one in found if started - _CLOCK_S <= one.start <= ended + _CLOCK_S]


def _complaint(job: PlannedJob, text: str, ending: str, started: float, ended: float) -> str:
    """kickstart puts the program's standard error into its own document; PegasusLite's own words
    and those of jobs without kickstart stand in the error file."""
    if said := kickstart.standard_error(text).strip():
        return tail(said)
    error = job.error or (job.output.with_suffix(".err") if job.output else None)
    if error is not None:
        for path in versions(error):
            same = path.name[len(error.name) :] == ending and bool(text)
            if (same or _written_in(path, started, ended)) and (
                said := end_of(path, 4 * TAIL_BYTES).strip()
            ):
                return tail(said)
    if "- invocation:" in text:
        return ""
    return tail("\n".join(x for x in text.splitlines() if not x.startswith(_OUR_RECORD)).strip())


def tail(text: str) -> str:
    """The last :data:`TAIL_BYTES` of a text at most, from the beginning of a line where there is
    one, without characters that are for terminals."""
    kept = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
    data = kept.encode(errors="replace")
    if len(data) > TAIL_BYTES:
        data = data[-TAIL_BYTES:]
        _, line_end, rest = data.partition(b"\n")
        data = rest if line_end and rest else data
    return data.decode(errors="ignore")


def _written_in(path: Path, started: float, ended: float) -> bool:
    try:
        return started - _CLOCK_S <= path.stat().st_mtime <= ended + _CLOCK_S
    except (OSError, ValueError):
        return False
