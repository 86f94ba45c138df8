"""Sizes of the files that a transfer list declares none for.

Pegasus declares a size where the workflow or the replica catalog has one, and never that of a file
that the workflow makes. Further sources, the later ones first:

    the file itself           a file:// URL of the machine that pegasus-transfer runs on, if ours
    adon-sizes.jsonl          what jobs of the embedded planner wrote
    <wf>-0.cache.meta         what jobs wrote, by pegasus-exitcode -M: one line per file,
                              ``lfn pfn … size="123"``
    <dir>/<job>.in.meta       what the planner knew of a job's inputs: a JSON list of
                              {"_id": lfn, "_attributes": {"size": "123"}}
    <wf>-0.metadata           what it knew of any job's files, from workflow and replica catalog:
                              "lfn@size": "123", "lfn.size": "123"
    the same of the workflows that this one is a part of, whose jobs made what it reads
    an estimate               the median of files whose names differ only in their numbers

Standard library only: the hooks import this.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles, input_sizes
from monitors.workflows.planned.transferlist import RELAY, SitePair

DECLARED, KNOWN, ESTIMATED, UNKNOWN = "declared", "known", "estimated", "unknown"
_META_LINE = re.compile(rb'^(\S+) (?:[^\n]*? )?size="(\d{1,18})"', re.M)
_META_ENDING = ".cache.meta"
_PLAN_LINE = re.compile(rb'^\s*"([^"\n]+)[@.]size": "(\d{1,18})"', re.M)
_PLAN_ENDING = "-0.metadata"
_DIGITS = re.compile(r"\d+")
_MOST_PARENTS = 8  # folders above a sub-workflow's that may be its parents'


def sizes_for(
    pairs: Iterable[SitePair], files: PlannedFiles, site: str
) -> tuple[dict[str, int], frozenset[str]]:
    """Bytes by lfn for what ``pairs`` do not declare, and the lfns of which they are estimates.

    ``files`` are those of the job; ``site`` is where it runs. Raises InputError.
    """
    undeclared = [t for pair in pairs for t in pair.undeclared]
    if not undeclared:
        return {}, frozenset()
    known: dict[str, int] = {}
    for folder in [*reversed([*_parents(files)]), files.submit_dir]:
        known |= of_workflow(folder)
    known |= input_sizes(files.file(".in.meta"))
    if site == RELAY:  # this machine
        known |= dict(_on_disk((t.lfn, t.source.url) for t in undeclared))
    estimates = estimated_sizes({t.lfn for t in undeclared} - known.keys(), known)
    return known | estimates, frozenset(estimates)


def source_of(pair: SitePair, known: Mapping[str, int], estimates: frozenset[str]) -> str:
    """Where the size of ``pair`` is from: the least certain of its files' sources."""
    lfns = {t.lfn for t in pair.undeclared}
    if not lfns:
        return DECLARED
    if not lfns <= known.keys():
        return UNKNOWN
    return ESTIMATED if lfns & estimates else KNOWN


def estimated_sizes(wanted: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """For each of ``wanted`` the median of the files of which the name has other numbers in the
    same places; nothing for those without any."""
    shapes: dict[str, list[int]] = {}
    for lfn, size in known.items():
        shapes.setdefault(_shape(lfn), []).append(size)
    return {lfn: median(shapes[_shape(lfn)]) for lfn in wanted if _shape(lfn) in shapes}


def of_workflow(folder: Path) -> dict[str, int]:
    """What is known about the files of one workflow."""
    known: dict[str, int] = {}
    for ending, line in ((_PLAN_ENDING, _PLAN_LINE), (_META_ENDING, _META_LINE)):
        for log in folder.glob("*" + ending):
            try:
                text = log.read_bytes()
            except OSError:  # gone since
                continue
            known |= {os.fsdecode(lfn): int(size) for lfn, size in line.findall(text)}
    return known | job_files.known_sizes(folder)


def _parents(files: PlannedFiles) -> Iterator[Path]:
    """The submit directories that the job's own lies in, the nearest first: Pegasus plans a
    sub-workflow into a folder of its parent's."""
    dump = files.braindump
    if dump.get("wf_uuid") == dump.get("root_wf_uuid", dump.get("wf_uuid")):
        return
    for folder in list(files.submit_dir.absolute().parents)[:_MOST_PARENTS]:
        if (folder / "braindump.yml").exists():
            yield folder


def _on_disk(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, int]]:
    for lfn, url in files:
        scheme, _, path = url.partition("://")
        if scheme != "file" or "$" in path:
            continue
        try:
            status = Path(path).stat()
        except OSError:  # not made yet
            continue
        if stat.S_ISREG(status.st_mode):  # of a folder it would be that of its list of names
            yield lfn, status.st_size


def median(values: list[int]) -> int:
    """The lower one; the module that has it takes longer to load than everything else here."""
    return sorted(values)[(len(values) - 1) // 2]


def _shape(lfn: str) -> str:
    return _DIGITS.sub("0", lfn)
