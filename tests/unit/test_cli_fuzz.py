"""Whatever stands in a file that users write, it is used or refused in one line; nothing else."""

from __future__ import annotations

import copy
import json
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_world import CONFIG, REPLICAS, SITES, TRANSFORMATIONS, WORKFLOW, write_world
from hypothesis import given, settings
from hypothesis import strategies as st

from adon.config.adon_yml import load_config
from adon.planning.placement import PlacementInputs, place_files
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig
from pegasus_hooks.planner.plan import plan
from site_selector.catalogs.sources import Sources
from site_selector.mapping.placement import Mapping

FILES = {
    "workflow": WORKFLOW,
    "sites": SITES,
    "replicas": REPLICAS,
    "transformations": TRANSFORMATIONS,
}

many_examples = settings(max_examples=40)


def words(document: Any) -> Iterator[str]:
    """Every key and text of a document: random structures of these reach further than letters."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from words(value)
    elif isinstance(document, list):
        for value in document:
            yield from words(value)
    elif isinstance(document, str):
        yield document


VOCABULARY = [
    *sorted({w for d in (*FILES.values(), CONFIG) for w in words(d)}),
    "", "-1", "0", "1e400", "0x", "nan", "9" * 5000, "٣", "a\nb", "\x00", "..", "(", "200 Mb/s",
]  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([10**400, -(10**19)])
    | st.sampled_from(VOCABULARY)
    | st.text(max_size=5)
)
KEYS = st.sampled_from(VOCABULARY)
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield from places(value, (*path, key))


@st.composite
def spoiled(draw: st.DrawFn, document: dict[str, Any]) -> Any:
    """A valid document with junk, a copy of another part, a new key or nothing at some places."""
    whole = {"top": copy.deepcopy(document)}
    for _ in range(draw(st.integers(1, 3))):
        path = ("top", *draw(st.sampled_from(list(places(whole["top"])))))
        inner: Any = whole
        for key in path[:-1]:
            inner = inner[key]
        here = inner[path[-1]]
        match draw(st.integers(0, 3)):
            case 0:
                inner[path[-1]] = draw(JUNK)
            case 1 if len(path) > 1:
                del inner[path[-1]]
            case 2 if isinstance(here, dict):
                here[draw(KEYS)] = draw(JUNK)
            case _ if isinstance(here, list) and here:
                here.append(copy.deepcopy(here[0]))
            case _:
                inner[path[-1]] = draw(LEAVES)
    return whole["top"]


def one_line(error: InputError) -> None:
    assert str(error) and "\n" not in str(error)


def as_yaml(value: Any) -> bytes:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode()


def load_from(content: bytes, name: str) -> None:
    """Use ``content`` as one of the files of the small world, in the place of the good one."""
    with tempfile.TemporaryDirectory() as folder:
        workflow = write_world(Path(folder))
        (Path(folder) / f"{name}.yml").write_bytes(content)
        try:
            placed = place_files(PlacementInputs(workflow, output_site="local"))
            plan(
                placed.inputs,
                Sources(workflow),
                placed.mapping.sites,
                Path(folder) / "submit",
                "local",
            )
        except InputError as error:
            one_line(error)
            assert not list(Path(folder).glob("submit/**/*.dag"))


def configure_from(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adon.yml"
        file.write_bytes(content)
        try:
            load_config(file)
        except InputError as error:
            one_line(error)
            assert str(file) in str(error)


ANYTHING = st.binary(max_size=60) | JUNK.map(as_yaml)


@pytest.mark.parametrize("name", FILES)
@many_examples
@given(st.data())
def test_a_file_of_a_workflow(name: str, data: st.DataObject) -> None:
    load_from(data.draw(spoiled(FILES[name]).map(as_yaml) | ANYTHING), name)


@many_examples
@given(spoiled(CONFIG).map(as_yaml) | ANYTHING)
def test_a_configuration(content: bytes) -> None:
    configure_from(content)


YAML_TROUBLE = [
    "a: !!python/object:os.system x",
    "a: 2001-99-99",
    "a: !!int x",
    "a: !!float x",
    "a: !!timestamp x",
    "a: !!binary é",
    "? [a, b]\n: c",
    "? {a: b}\n: c",
    "a: &x [*x]",
    "&x a: *x",
    "a: *nowhere",
    "<<: 3",
    "a: 1\n---\nb: 2",
    "a: b: c",
    "\ta: 1",
    "a: [1, 2",
    "a: 'b",
    "%YAML 9.9\n---\na: 1",
    "[" * 3000,
    "{a: " * 3000,
    "- " * 3000,
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
    + "\n".join(f"d{i}: &d{i} [*{'c' if i == 0 else f'd{i - 1}'}, *c]" for i in range(5)),
    "\n".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 9) if i else 'x'}]" for i in range(30)),
]


@pytest.mark.parametrize("text", YAML_TROUBLE)
def test_yaml_that_means_trouble(text: str) -> None:
    for name in FILES:
        load_from(text.encode(), name)
    configure_from(text.encode())
    for place in ("topology", "templates"):
        configure_from(f"{place}:\n{textwrap.indent(text, '  ')}".encode())


MAPPING = {
    "workflow": "small",
    "policy": "heft",
    "makespan_s": 1.0,
    "output_site": "local",
    "seed": 0,
    "portfolio": {"heft": 1.0},
    "placements": [
        {
            "job": "ID1",
            "transformation": "align",
            "site": "mu",
            "reason": "",
            "start_s": 0.0,
            "end_s": 1.0,
            "alternatives": [
                {"site": "mu", "t_q_s": 0.0, "t_c_s": None, "t_n_s": 0.0, "t_t_s": None}
            ],
        }
    ],
    "beliefs": {},
}


@many_examples
@given(spoiled(MAPPING).map(lambda d: json.dumps(d).encode()) | st.binary(max_size=60))
def test_a_spoiled_mapping(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.json"
        file.write_bytes(content)
        try:
            Mapping.load(file)
        except InputError as error:
            one_line(error)


HOOKS = {"broker": "http://127.0.0.1:8470", "timeout_s": 2.0, "template": "soykb", "archive": None}


@many_examples
@given(spoiled(HOOKS).map(lambda d: json.dumps(d).encode()) | st.binary(max_size=60))
def test_a_spoiled_hook_configuration(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "h.json"
        file.write_bytes(content)
        try:
            hookconfig.load(file)
        except InputError as error:
            one_line(error)
