"""A copy of an abstract workflow that tells Pegasus where each job goes.

Pegasus's planner takes a job's selector profile ``execution.site`` as it is:

    profiles:
      selector:
        execution.site: mu
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import yaml

from network_provisioner.errors import InputError
from site_selector.placement import Mapping
from site_selector.wholefile import write_whole
from site_selector.workflow import WHAT
from site_selector.yamltext import read_document

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TEXT = "tag:yaml.org,2002:str"
_MAP = "tag:yaml.org,2002:map"


@contextmanager
def _no_collection() -> Iterator[None]:
    """A large workflow is millions of nodes, all of them in use: to look for garbage among them
    again and again takes longer than all the rest."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_no_collection()
def hinted_copy(workflow_path: str | Path, mapping: Mapping, out_path: str | Path) -> int:
    """Write the workflow to ``out_path`` with an ``execution.site`` for every placed job.

    A job's own ``execution.site`` is kept, all else too (YAML comments apart: the copy is written
    anew from the parsed document, every value with the text it had). Returns the number of profiles
    added. Raises InputError where the workflow has no such job or a file cannot be written.
    """
    document = read_document(workflow_path, WHAT)
    root: Any = yaml.compose(document.text, Loader=_LOADER)
    jobs = _value(root, "jobs")
    if not isinstance(jobs, yaml.SequenceNode):
        raise document.error(("jobs",), f"no list of jobs, expected a {WHAT}")
    sites = mapping.sites
    added = 0
    for job in jobs.value:
        name = _value(job, "id")
        site = sites.pop(name.value, None) if isinstance(name, yaml.ScalarNode) else None
        if site is not None and _add_hint(job, site):
            added += 1
    if sites:
        raise InputError(
            f"{document.name}: the mapping places job {next(iter(sites))!r}, which the workflow "
            "does not have"
        )

    def write(stream: TextIO) -> None:
        yaml.serialize(root, stream, Dumper=_DUMPER, width=1 << 20, allow_unicode=True)

    write_whole(out_path, write, "the workflow")
    return added


def _value(node: Any, key: str) -> Any:
    """The value node under ``key`` of a mapping node, or None."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value == key:
                return value
    return None


def _child(node: Any, key: str) -> Any:
    """The mapping under ``key``, made or copied, so that one shared by an alias stays as it is."""
    old = _value(node, key)
    pairs = list(old.value) if isinstance(old, yaml.MappingNode) else []
    new = yaml.MappingNode(_MAP, pairs, flow_style=False)
    if old is None:
        node.value.append((yaml.ScalarNode(_TEXT, key), new))
    else:
        node.value = [(k, new if v is old else v) for k, v in node.value]
    return new


def _add_hint(job: Any, site: str) -> bool:
    if _value(_value(_value(job, "profiles"), "selector"), "execution.site") is not None:
        return False
    selector = _child(_child(job, "profiles"), "selector")
    # Quoted where plain text would read as a number or a truth value.
    resolver: Any = yaml.SafeLoader("")
    plain = resolver.resolve(yaml.ScalarNode, site, (True, False)) == _TEXT
    value = yaml.ScalarNode(_TEXT, site, style=None if plain else "'")
    selector.value.append((yaml.ScalarNode(_TEXT, "execution.site"), value))
    return True
