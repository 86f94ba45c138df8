"""A copy of an abstract workflow that tells Pegasus where each job goes.

Pegasus's planner takes a job's selector profile ``execution.site`` as it is:

    profiles:
      selector:
        execution.site: mu

That is put into the text, which is otherwise copied as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from network_provisioner.base.errors import InputError
from site_selector.catalogs.documents import LOADER, RefusedError, read_text, uncollected
from site_selector.catalogs.workflow import WHAT
from site_selector.mapping.placement import Mapping
from site_selector.wholefile import write_whole

_PROFILE = ("profiles", "selector", "execution.site")


class _Edit(NamedTuple):
    """Text in the place of what stands from ``start`` to ``end``."""

    start: int
    end: int
    text: str


class _Place(NamedTuple):
    """A value, by its first event, into which the entries ``missing`` belong, each in the one
    before; none where all are there. ``shared`` where other jobs have the same value."""

    event: Any
    missing: tuple[str, ...]
    is_empty: bool
    shared: bool


@uncollected()
def hinted_copy(workflow_path: str | Path, mapping: Mapping, out_path: str | Path) -> int:
    """Write the workflow to ``out_path`` with an ``execution.site`` for every placed job.

    A job's own ``execution.site`` is kept, and all else too. Returns the number of profiles added.
    Raises InputError where the workflow has no such job, where a job shares its profiles with
    others by an anchor (which Pegasus does not read), or where a file cannot be written.
    """
    text = read_text(workflow_path, WHAT).replace("\r\n", "\n")
    sites = mapping.sites
    try:
        edits = list(_edits(yaml.parse(text, Loader=LOADER), sites))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{workflow_path}:{line}: {error.problem}, expected a {WHAT}") from None
    if sites:
        raise InputError(
            f"{workflow_path}: the mapping places job {next(iter(sites))!r}, which the workflow "
            "does not have"
        )
    write_whole(out_path, lambda out: out.writelines(_pieces(text, edits)), "the workflow")
    return len(edits)


def _pieces(text: str, edits: list[_Edit]) -> Iterator[str]:
    at = 0
    for edit in edits:
        yield text[at : edit.start]
        yield edit.text
        at = edit.end
    yield text[at:]


def _edits(events: Iterator[Any], sites: dict[str, str]) -> Iterator[_Edit]:
    """What to put where, in the order of the text. Takes the jobs it finds out of ``sites``."""
    root: Any = next(event for event in events if isinstance(event, yaml.NodeEvent))
    found = False
    for key, value in _entries(events, root):
        if key != "jobs" or type(value) is not yaml.SequenceStartEvent:
            _skip(events, value)
            continue
        found = True
        while type(entry := next(events)) is not yaml.SequenceEndEvent:
            if type(entry) is not yaml.MappingStartEvent:
                _skip(events, entry)
                continue
            name, place = _job(events, entry)
            site = sites.pop(name, None)
            if site is not None and place.missing:
                yield _edit(place, site)
    if not found:
        raise RefusedError(problem="no list of jobs", problem_mark=root.start_mark)


def _job(events: Iterator[Any], job: Any) -> tuple[str, _Place]:
    """A job's id, and where its hint belongs."""
    name, place, is_empty, merged = "", None, True, False
    for key, value in _entries(events, job):
        is_empty = False
        merged = merged or key == "<<"
        if key == "id" and type(value) is yaml.ScalarEvent:
            name = value.value
        elif key == "profiles":
            place = _place(events, value, _PROFILE[1:])
        else:
            _skip(events, value)
    if place is None:
        place = _Place(job, _PROFILE, is_empty, merged)
    return name, place._replace(shared=place.shared or job.anchor is not None)


def _place(events: Iterator[Any], value: Any, missing: tuple[str, ...]) -> _Place:
    """Where in a value the entries belong that are ``missing`` as far as is known."""
    if type(value) is not yaml.MappingStartEvent:
        _skip(events, value)
        return _Place(value, missing, True, value.anchor is not None)
    found, is_empty, merged = None, True, False
    for key, inner in _entries(events, value):
        is_empty = False
        merged = merged or key == "<<"
        if key == missing[0] and missing[1:]:
            found = _place(events, inner, missing[1:])
        else:
            _skip(events, inner)
            found = _Place(value, (), False, False) if key == missing[0] else found
    if found is None:
        found = _Place(value, missing, is_empty, merged)
    return found._replace(shared=found.shared or value.anchor is not None)


def _edit(place: _Place, site: str) -> _Edit:
    event: Any = place.event
    if place.shared:
        raise RefusedError(
            problem="found what jobs share by an anchor or a merge, which Pegasus does not read",
            problem_mark=event.start_mark,
        )
    start = event.start_mark.index
    if type(event) is not yaml.MappingStartEvent:  # nothing: it stands for an empty mapping
        return _Edit(start, event.end_mark.index, f" {{{_flow(place.missing, site)}}}")
    if event.flow_style:
        comma = "" if place.is_empty else ", "
        return _Edit(start + 1, start + 1, _flow(place.missing, site) + comma)
    column: int = place.event.start_mark.column
    return _Edit(start, start, _block(place.missing, site, column))


@cache
def _flow(names: tuple[str, ...], site: str) -> str:
    value: Any = site
    for name in reversed(names):
        value = {name: value}
    return json.dumps(value, ensure_ascii=False)[1:-1]


@cache
def _block(names: tuple[str, ...], site: str, column: int) -> str:
    """The first entry of a mapping whose keys stand in ``column``, up to its next key."""
    *outer, last = (" " * (column + 2 * depth) + name for depth, name in enumerate(names))
    text = yaml.safe_dump(site, allow_unicode=True, width=1 << 20).removesuffix("...\n").strip()
    lines = [*(f"{line}:\n" for line in outer), f"{last}: {text}\n", " " * column]
    return "".join(lines).lstrip(" ") if column else "".join(lines)


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


_STARTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
