"""Documents and files as the examples write them: whole or not at all, and the same every time."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import yaml
from Pegasus.api import (
    Properties,
    ReplicaCatalog,
    SiteCatalog,
    TransformationCatalog,
    Workflow,
)
from Pegasus.api.writable import Writable


def put(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises OSError."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_yaml(document: Writable) -> str:
    """What Pegasus's API writes, in an order that does not change between runs.

    The API keeps files and children in sets and stamps time and user into every file.
    """
    text = io.StringIO()
    document.write(text, _format="json")
    plain: dict[str, Any] = json.loads(text.getvalue())
    plain["x-pegasus"] = {"apiLang": "python"}
    for job in plain.get("jobs", []):
        job["uses"].sort(key=lambda use: (use["type"], use["lfn"]))
    for link in plain.get("jobDependencies", []):
        link["children"].sort()
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True))


def properties(out: Path) -> str:
    """pegasus.properties: the catalogs beside it, jobs in each site's shared file system."""
    lines = Properties()
    for kind, file in (
        ("site", "sites.yml"),
        ("replica", "replicas.yml"),
        ("transformation", "transformations.yml"),
    ):
        lines[f"pegasus.catalog.{kind}"] = "YAML"
        lines[f"pegasus.catalog.{kind}.file"] = str(out / file)
    lines["pegasus.data.configuration"] = "sharedfs"
    lines["dagman.retry"] = "1"
    text = io.StringIO()
    lines.write(text)
    return text.getvalue()


def write_plan(
    out: Path,
    workflow: Workflow,
    sites: SiteCatalog,
    replicas: ReplicaCatalog,
    transformations: TransformationCatalog,
) -> None:
    """The workflow, its catalogs and properties into ``out``; the workflow comes last, so a process
    that finds it finds everything it needs. Raises OSError."""
    for file, text in (
        ("sites.yml", as_yaml(sites)),
        ("replicas.yml", as_yaml(replicas)),
        ("transformations.yml", as_yaml(transformations)),
        ("pegasus.properties", properties(out)),
        ("workflow.yml", as_yaml(workflow)),
    ):
        put(out / file, text.encode())
