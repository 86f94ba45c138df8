"""Whatever stands in a workflow or a catalog is read, or refused in one line, and what Pegasus's
own API writes is read as it was meant."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from site_world import resequencing

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import (
    MAX_DURATION_S,
    MAX_RATE_BPS,
    MAX_SIZE_BYTES,
    parse_duration,
    parse_rate,
    parse_size,
)
from site_selector.catalogs.documents import parse_document
from site_selector.catalogs.entries import replicas_of, sites_of, transformations_of
from site_selector.catalogs.workflow import Workflow, parse_workflow, read_workflow

FEW = settings(max_examples=30)


def refused_in_one_line(call: Callable[[], object]) -> None:
    try:
        call()
    except InputError as error:
        assert str(error).isprintable()


# ------------------------------------------------------------------------------- quantities

NUMBERS = st.sampled_from(
    ["1", "0", "-1", "1.5", ".5", "1e3", "1e400", "nan", "inf", "9" * 400, "9" * 5000, "0x1", "1_0",
     "١", "½", "", " "]
)  # fmt: skip
UNITS = st.sampled_from(
    ["", "b/s", "Mb/s", "MB/s", "Mbit/s", "Gbps", "B", "MB", "MiB", "GiB", "s", "ms", "min", "h",
     "week", "%", "//", "\x00", "µs", "K", "kib"]
)  # fmt: skip
QUANTITIES = (
    st.builds(lambda n, gap, unit: n + gap + unit, NUMBERS, st.sampled_from(["", " ", "\n"]), UNITS)
    | st.text(max_size=8)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.lists(st.integers(), max_size=1)
)


@given(QUANTITIES)
def test_a_quantity_is_finite_within_its_limits_or_refused(value: object) -> None:
    for parse, most in (
        (parse_rate, MAX_RATE_BPS),
        (parse_size, MAX_SIZE_BYTES),
        (parse_duration, MAX_DURATION_S),
    ):
        try:
            quantity = parse(value, "x")
        except InputError as error:
            assert str(error).startswith("x: found ")
            assert "expected" in str(error)
        else:
            assert math.isfinite(quantity)
            assert 0 <= quantity <= most


@given(st.integers(0, 10**15), st.sampled_from([("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9)]))
def test_quantities_with_units_are_what_they_say(number: int, unit: tuple[str, float]) -> None:
    name, scale = unit
    if number * scale <= MAX_RATE_BPS:
        assert parse_rate(f"{number} {name}b/s") == number * scale
        assert parse_size(f"{number}{name}B") == number * scale


# ------------------------------------------------------------------------------- documents

GOOD = dict(
    zip(
        ("workflow", "sites", "replicas", "transformations"),
        resequencing(
            2, 2, {"mu": {"adon.workers": 2}, "tacc": {"adon.bandwidth.mu": "1 Gb/s"}}, "mu"
        ),
        strict=True,
    )
)
READERS: dict[str, Callable[[str], object]] = {
    "workflow": parse_workflow,
    "sites": lambda text: sites_of(parse_document(text, "s.yml", "site catalog")),
    "replicas": lambda text: replicas_of(parse_document(text, "r.yml", "replica catalog")),
    "transformations": lambda text: transformations_of(
        parse_document(text, "t.yml", "transformation catalog")
    ),
}  # fmt: skip
FIELDS = st.sampled_from(
    ["pegasus", "name", "jobs", "id", "type", "uses", "lfn", "size", "metadata", "profiles",
     "selector", "execution.site", "runtime", "cores", "jobDependencies", "children", "sites",
     "directories", "fileServers", "url", "operation", "path", "arch", "os.type", "replicas",
     "pfns", "pfn", "site", "regex", "transformations", "namespace", "version", "adon.workers",
     "adon.rate", "stageOut", "<<"]
)  # fmt: skip
VALUES = (
    FIELDS
    | QUANTITIES.map(lambda v: str(v) if isinstance(v, list) else v)
    | st.sampled_from(
        ["job", "input", "output", "mu", "true", "5.0", "installed", "a", "(", "a\nb"]
    )
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=15,
)


@pytest.mark.parametrize("kind", READERS)
@FEW
@given(st.data())
def test_any_tree_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    key = {"workflow": "jobs"}.get(kind, kind)
    entries = st.lists(TREES | st.dictionaries(FIELDS, TREES, max_size=8), min_size=1, max_size=3)
    tree = data.draw(st.fixed_dictionaries({key: entries}, optional={"jobDependencies": TREES}))
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    refused_in_one_line(lambda: READERS[kind](text))


@st.composite
def spoiled(draw: st.DrawFn, text: str) -> str:
    """A good text with pieces cut out, doubled, moved or written over."""
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        end = min(end, start + draw(st.sampled_from([0, 1, 5, 40, 10**6])))
        piece = draw(
            st.sampled_from(
                ["", text[start:end] * 2, "\n", "\t", "- ", ": ", "'", "{", "&a ", "*a"]
            )
            | st.text(max_size=3)
        )
        text = text[:start] + piece + text[end:]
    return text


@pytest.mark.parametrize("kind", READERS)
@FEW
@given(st.data())
def test_spoiled_text_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    text = data.draw(spoiled(GOOD[kind]))
    refused_in_one_line(lambda: READERS[kind](text))


# ------------------------------------------------------------------------------- Pegasus's API

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6
)  # fmt: skip
SHAPES = st.lists(
    st.fixed_dictionaries(
        {
            "name": NAMES,
            "reads": st.sets(st.integers(0, 11), max_size=4),
            "keep": st.booleans(),
            "arguments": st.lists(
                st.text(st.characters(codec="utf-8", exclude_categories=["C"])), max_size=2
            ),
        },
        optional={
            "namespace": NAMES,
            "version": NAMES | st.sampled_from(["1.10", "2", "no"]),
            "runtime": st.integers(1, 10**6),
            "cores": st.integers(1, 64),
            "site": NAMES,
        },
    ),
    min_size=1,
    max_size=5,
)


def as_read(flow: Workflow) -> Any:
    return (
        flow.jobs,
        flow.files,
        {job: set(parents) for job, parents in flow.parents.items()},
    )


@FEW
@given(SHAPES, st.lists(st.none() | st.integers(0, 10**15), min_size=12, max_size=12))
def test_what_pegasus_writes_is_read_as_it_was_meant(
    shapes: list[dict[str, Any]], sizes: list[int | None]
) -> None:
    api = pytest.importorskip("Pegasus.api")
    # Files 0 to 5 come from outside; file 6 + n is what job n writes.
    files = [api.File(f"f{i}", size=size) for i, size in enumerate(sizes)]
    flow = api.Workflow("made", infer_dependencies=True)
    for n, shape in enumerate(shapes):
        reads = sorted(i for i in shape["reads"] if i < 6 + n)
        made = api.Job(
            shape["name"],
            namespace=shape.get("namespace"),
            version=shape.get("version"),
            _id=f"ID{n}",
        )
        made.add_args(*shape["arguments"]).add_inputs(*(files[i] for i in reads))
        made.add_outputs(files[6 + n], stage_out=shape["keep"])
        if "site" in shape:
            made.add_selector_profile(execution_site=shape["site"])
        for key in ("runtime", "cores"):
            if key in shape:
                made.add_pegasus_profile(**{key: shape[key]})
        flow.add_jobs(made)
    with tempfile.TemporaryDirectory() as folder:
        written = [Path(folder) / name for name in ("w.yml", "w.json")]
        for file in written:
            flow.write(str(file), _format=file.suffix[1:])
        workflow, other = (read_workflow(file) for file in written)
    assert as_read(workflow) == as_read(other)
    assert list(workflow.jobs) == [f"ID{n}" for n in range(len(shapes))]
    for n, shape in enumerate(shapes):
        job = workflow.jobs[f"ID{n}"]
        reads = {i for i in shape["reads"] if i < 6 + n}
        name = shape["name"]
        name = f"{shape['namespace']}::{name}" if "namespace" in shape else name
        name = f"{name}:{shape['version']}" if "version" in shape else name
        assert job.transformation == name
        assert set(job.inputs) == {f"f{i}" for i in reads}
        assert job.outputs == (f"f{6 + n}",)
        assert (job.runtime_s, job.cores) == (shape.get("runtime"), shape.get("cores", 1))
        assert job.site_hint == shape.get("site")
        assert set(workflow.parents[job.id]) == {f"ID{i - 6}" for i in reads if i >= 6}
        assert workflow.files[f"f{6 + n}"].stage_out == shape["keep"]
    for lfn, file in workflow.files.items():
        assert file.size_bytes == sizes[int(lfn[1:])]
