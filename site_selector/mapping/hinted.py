"""A copy of an abstract workflow that tells Pegasus where each job goes.

Pegasus's planner takes a job's selector profile ``execution.site`` as it is, and so it does with
the priority that HTCondor starts the job by:

    profiles:
      selector:
        execution.site: mu
      condor:
        priority: 27

That is put into the text, which is otherwise copied as it is.
"""

from __future__ import annotations

import json
from collections import abc
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from network_provisioner.base.errors import InputError
from site_selector.catalogs import pegasus4
from site_selector.catalogs.documents import LOADER, RefusedError, read_expanded, uncollected
from site_selector.catalogs.properties import escaped
from site_selector.catalogs.workflow import WHAT
from site_selector.mapping.placement import Mapping, Placement
from site_selector.wholefile import write_whole

_STARTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class _Edit(NamedTuple):
    """Text in the place of what is from ``start`` to ``end``."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class _Node:
    """A value of the text by its first event, and the values in it that matter, by key.

    ``shared``: other jobs have the same value; ``merged``: its keys may come from elsewhere.
    """

    event: Any
    shared: bool
    merged: bool = False
    is_empty: bool = True
    keys: dict[str, _Node | None] = field(default_factory=dict)


@uncollected()
def hinted_copy(
    workflow_path: str | Path,
    mapping: Mapping,
    out_path: str | Path,
    variables: abc.Mapping[str, str] | None = None,
) -> int:
    """Write the workflow to ``out_path`` with an ``execution.site`` for every placed job, and the
    priority that the mapping gives it.

    A job's own profiles are kept, and all else too, with the ``variables`` (by default the
    environment) put in that the mapping was made with. Returns how many jobs were given any. Raises
    InputError if the workflow has no such job, where a job shares its profiles with others by an
    anchor (which Pegasus does not read), or where a file cannot be written.
    """
    text = read_expanded(workflow_path, WHAT, variables).replace("\r\n", "\n")
    wanted = {placed.job: _wanted(placed) for placed in mapping.placements}
    if pegasus4.is_xml(text):
        return _hinted_xml(text, str(workflow_path), wanted, out_path)
    try:
        edits = list(_edits(yaml.parse(text, Loader=LOADER), wanted))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{workflow_path}:{line}: {error.problem}, expected a {WHAT}") from None
    _check_known(str(workflow_path), wanted)
    pieces = _pieces(text, [edit for group in edits for edit in group])
    write_whole(out_path, lambda out: out.writelines(pieces), "the workflow")
    return len(edits)


def _hinted_xml(
    text: str, name: str, wanted: dict[str, dict[str, Any]], out_path: str | Path
) -> int:
    more = {job: value["profiles"] for job, value in wanted.items()}
    try:
        pieces, jobs = pegasus4.with_profiles(text, more)
    except pegasus4.FormError as error:
        raise InputError(f"{name}:{error.line}: {error}, expected a {WHAT}") from None
    _check_known(name, [job for job in wanted if job not in jobs])
    own = [piece if number % 2 else escaped(piece) for number, piece in enumerate(pieces)]
    write_whole(out_path, lambda out: out.writelines(own), "the workflow")
    return len(wanted)


def _check_known(name: str, unknown: Collection[str]) -> None:
    if unknown:
        raise InputError(
            f"{name}: the mapping places job {next(iter(unknown))!r}, which the workflow "
            "does not have"
        )


def _wanted(placed: Placement) -> dict[str, Any]:
    profiles: dict[str, Any] = {"selector": {"execution.site": placed.site}}
    if placed.priority is not None:
        profiles["condor"] = {"priority": placed.priority}
    return {"profiles": profiles}


def _pieces(text: str, edits: list[_Edit]) -> Iterator[str]:
    at = 0
    for edit in edits:
        yield escaped(text[at : edit.start])
        yield edit.text
        at = edit.end
    yield escaped(text[at:])


def _edits(events: Iterator[Any], wanted: dict[str, dict[str, Any]]) -> Iterator[list[_Edit]]:
    """What to put where, job by job, in the order of the text. Takes the jobs it finds out of
    ``wanted``."""
    root: Any = next(event for event in events if isinstance(event, yaml.NodeEvent))
    is_there = False
    for key, value in _entries(events, root):
        if key == "jobs" and is_there:
            raise RefusedError(problem="key 'jobs' is given twice", problem_mark=value.start_mark)
        if key != "jobs" or type(value) is not yaml.SequenceStartEvent:
            _skip(events, value)
            continue
        is_there = True
        while type(entry := next(events)) is not yaml.SequenceEndEvent:
            if type(entry) is not yaml.MappingStartEvent:
                _skip(events, entry)
                continue
            name, node = _job(events, entry)
            edits = sorted(_missing(node, wanted.pop(name, {})))
            if edits:
                yield edits
    if not is_there:
        raise RefusedError(problem="no list of jobs", problem_mark=root.start_mark)


def _job(events: Iterator[Any], job: Any) -> tuple[str, _Node]:
    """A job's id, and what there is of profiles."""
    name, node = "", _Node(job, job.anchor is not None)
    for key, value in _entries(events, job):
        node.is_empty = False
        node.merged |= key == "<<"
        if key == "id" and type(value) is yaml.ScalarEvent:
            name = value.value
        if key == "profiles":
            node.keys[key] = _read(events, value, 1, node.shared)
        else:
            _skip(events, value)
    return name, node


def _read(events: Iterator[Any], value: Any, depth: int, shared: bool) -> _Node:
    """A value with this many levels of what is in it."""
    node = _Node(value, shared or value.anchor is not None)
    if type(value) is not yaml.MappingStartEvent:
        _skip(events, value)
    for key, inner in _entries(events, value):
        node.is_empty = False
        node.merged |= key == "<<"
        if depth:
            node.keys[key] = _read(events, inner, depth - 1, node.shared)
        else:
            _skip(events, inner)
            node.keys[key] = None
    return node


def _missing(node: _Node, wanted: dict[str, Any]) -> Iterator[_Edit]:
    """Edits that put in what is not there."""
    missing = {key: value for key, value in wanted.items() if key not in node.keys}
    for key, inner in node.keys.items():
        if inner is not None and key in wanted:
            yield from _missing(inner, wanted[key])
    if missing:
        yield _edit(node, missing)


def _edit(node: _Node, missing: dict[str, Any]) -> _Edit:
    event: Any = node.event
    if node.shared or node.merged:
        raise RefusedError(
            problem="found what jobs share by an anchor or a merge, which Pegasus does not read",
            problem_mark=event.start_mark,
        )
    start = event.start_mark.index
    flow = json.dumps(missing, ensure_ascii=False)
    if type(event) is not yaml.MappingStartEvent:  # nothing: it stands for an empty mapping
        return _Edit(start, event.end_mark.index, f" {flow}")
    if event.flow_style:
        return _Edit(start + 1, start + 1, flow[1:-1] + ("" if node.is_empty else ", "))
    column: int = node.event.start_mark.column
    lines = [*_lines(missing, column), " " * column]
    return _Edit(start, start, "\n".join(lines)[column:])


def _lines(entries: dict[str, Any], column: int) -> Iterator[str]:
    """Entries of a mapping whose keys begin in ``column``."""
    for key, value in entries.items():
        if isinstance(value, dict):
            yield f"{' ' * column}{key}:"
            yield from _lines(value, column + 2)
        else:
            yield f"{' ' * column}{key}: {_scalar(value)}"


@cache
def _scalar(value: str | int) -> str:
    text = yaml.safe_dump(value, allow_unicode=True, width=1 << 20)
    return text.removesuffix("...\n").strip()


def _entries(events: Iterator[Any], mapping: Any) -> Iterator[tuple[str, Any]]:
    """Keys of a mapping that began, and the first event of each value. The caller takes the rest
    of the value's events."""
    if type(mapping) is yaml.MappingStartEvent:
        while type(key := next(events)) is not yaml.MappingEndEvent:
            if type(key) is not yaml.ScalarEvent:
                _skip(events, key)
            yield key.value if type(key) is yaml.ScalarEvent else "", next(events)


def _skip(events: Iterator[Any], event: Any) -> None:
    depth = int(type(event) in _STARTS)
    while depth:
        kind = type(next(events))
        if kind in _STARTS:
            depth += 1
        elif kind in _ENDS:
            depth -= 1
