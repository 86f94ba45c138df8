"""Workflows of the examples' shapes whose jobs take time but no processor, and their catalogs.

Each job sleeps as long as the example's program was measured to run, and writes files of the size
that its own had. Both are those of larger data: the examples' data is a thousandth of real ones.
Two cores then run ten workflows at once, and what is compared is waiting, moving and placing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from Pegasus.api import Namespace, Workflow

from examples.montage.sky import Recipe, Sky
from examples.montage.workflow import Mosaic, make_inputs, runtimes_s
from examples.scenario import run_program
from examples.workflows import catalogs, places
from examples.workflows.catalogs import SiteEstimate
from examples.workflows.files import as_yaml, properties, put
from examples.workflows.jobs import SIZE_ESTIMATE, Jobs
from examples.workflows.places import Place

_SOYKB = Path(__file__).resolve().parents[1] / "soykb" / "workflow.py"
NAMESPACE = "shapes"
STORE = "iplant"
EXECUTION = ("mu", "tacc")
_BELIEF = SiteEstimate(rate="10 MB/s", queue_wait="3 s")
_LAN, _WAN = "1 Gb/s", "32 Mb/s"
# Of the examples' own run times and sizes.
_TIMES, _SIZES = 5, 4
# Seconds that SoyKB's programs take with its default data (examples/soykb/pgen/shape.py).
_SOYKB_S = {
    "bwa_index": 0.14, "faidx": 0.01, "seq_dict": 0.01, "alignment_to_reference": 2.8,
    "sort_sam": 0.77, "dedup": 0.72, "add_replace": 0.72, "haplotype_caller": 0.87,
    "genotype_gvcfs": 0.31, "merge_gvcf": 1.39, "combine_variants": 0.01,
    "select_variants_snp": 0.01, "filtering_snp": 0.01, "select_variants_indel": 0.01,
    "filtering_indel": 0.01,
}  # fmt: skip
_PROGRAM = """#!/bin/sh
# job SECONDS [FILE=BYTES ...]
sleep "$1"
shift
for file; do truncate -s "${file#*=}" "${file%=*}"; done
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """An abstract workflow: its document, the seconds of each program, the bytes of each input."""

    document: Mapping[str, Any]
    seconds: Mapping[str, float]
    inputs: Mapping[str, int]

    @property
    def name(self) -> str:
        """The workflow's."""
        return str(self.document["name"])


def parts(shape: str) -> tuple[Shape, ...]:
    """The workflows of a shape, of which each begins when the one before it has ended: several for
    sub-workflows."""
    if shape == "nested":
        return _fan("first", 6), _fan("second", 6)
    return (_fan("fan", 12) if shape == "fan" else _soykb() if shape == "soykb" else _montage(),)


SHAPES = ("soykb", "montage", "fan", "nested")


@cache
def _soykb() -> Shape:
    with TemporaryDirectory() as folder:
        run_program(_SOYKB, "--no-data", "--out", folder)
        document = yaml.safe_load((Path(folder) / "workflow.yml").read_text(encoding="utf-8"))
    return _larger("soykb", document, _SOYKB_S)


@cache
def _montage() -> Shape:
    sky = Sky(Recipe(bands=1))
    sizes = {name: len(content) for name, content in make_inputs(sky).items()}
    return _larger("montage", _document(Mosaic(sky, sizes).workflow), runtimes_s(sky))


@cache
def _fan(name: str, width: int) -> Shape:
    """One job, then so many, then one."""
    pieces = [f"{name}-{n}" for n in range(width)]
    done = [f"{piece}.out" for piece in pieces]
    inputs = {f"{name}.in": 5_000_000}
    jobs = Jobs(name, NAMESPACE, inputs, lambda lfn: 250_000 if lfn in done else 500_000)
    jobs.job("split", (), (f"{name}.in",), tuple(pieces))
    for piece, out in zip(pieces, done, strict=True):
        jobs.job("work", (), (piece,), (out,))
    jobs.job("join", (), tuple(done), (f"{name}.all",), publish=True)
    return _larger(name, _document(jobs.workflow), {"split": 0.5, "work": 2.0, "join": 0.5})


def _document(workflow: Workflow) -> dict[str, Any]:
    return dict(yaml.safe_load(as_yaml(workflow)))


def _larger(name: str, document: dict[str, Any], seconds: Mapping[str, float]) -> Shape:
    """The workflow with so many times the seconds and bytes, and jobs that do what they say."""
    longer = {program: _TIMES * s for program, s in seconds.items()}
    inputs: dict[str, int] = {}
    for job in document["jobs"]:
        job["namespace"] = NAMESPACE
        words = [f"{longer[job['name']]:g}"]
        for use in job["uses"]:
            about = use["metadata"]
            if "size" in use:
                use["size"] *= _SIZES
                about["size"] = inputs[use["lfn"]] = use["size"]
            else:
                about[SIZE_ESTIMATE] = str(_SIZES * int(about[SIZE_ESTIMATE]))
            if use["type"] == "output":
                words.append(f"{use['lfn']}={about[SIZE_ESTIMATE]}")
        job["arguments"] = words
    return Shape({**document, "name": name}, longer, inputs)


def store_inputs(shape: Shape, where: Mapping[str, Place]) -> None:
    """Have a shape's inputs at the data store, as files without content. Raises OSError."""
    for lfn, size in shape.inputs.items():
        file = _stored(shape, where) / lfn
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.truncate(file, size)


def write(shape: Shape, where: Mapping[str, Place], out: Path, user: str) -> Path:
    """Write the workflow of a ``user`` with its catalogs into ``out``; its file. ``where`` are
    :func:`testbed`'s sites. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    program = out / "job"
    put(program, _PROGRAM.encode())
    program.chmod(0o755)
    near = frozenset({frozenset({"mu", "local"})})
    sites = catalogs.site_catalog(
        where,
        dict.fromkeys(where, _BELIEF),
        lambda src, dst: _LAN if frozenset({src, dst}) in near else _WAN,
    )
    for site in sites.sites.values():
        site.add_profiles(Namespace.CONDOR, key="accounting_group_user", value=user)
    folder = str(_stored(shape, where))
    checksums = {lfn: _sha256_of_zeros(size) for lfn, size in shape.inputs.items()}
    replicas = catalogs.replica_catalog(where[STORE], folder, shape.inputs, checksums)
    programs = catalogs.transformation_catalog(
        NAMESPACE, shape.seconds, lambda _name: dict.fromkeys(EXECUTION, str(program))
    )
    text = yaml.safe_dump(dict(shape.document), sort_keys=False)
    for file, content in (
        ("sites.yml", as_yaml(sites)),
        ("replicas.yml", as_yaml(replicas)),
        ("transformations.yml", as_yaml(programs)),
        ("pegasus.properties", properties(out)),
        ("workflow.yml", text),
    ):
        put(out / file, content.encode())
    return out / "workflow.yml"


def testbed(described: Path) -> dict[str, Place]:
    """The sites of a running testbed. Raises InputError."""
    return places.testbed_places(described, (STORE, *EXECUTION, "local"), described.parent)


def _stored(shape: Shape, where: Mapping[str, Place]) -> Path:
    return Path(where[STORE].storage) / NAMESPACE / shape.name


@cache
def _sha256_of_zeros(size: int) -> str:
    made = hashlib.sha256()
    for start in range(0, size, 1 << 20):
        made.update(bytes(min(1 << 20, size - start)))
    return made.hexdigest()
