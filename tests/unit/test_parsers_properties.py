"""What HTCondor and Pegasus write, and what users save: whatever stands in it is read, passed over
or refused in one line."""

# ruff: noqa: E501  (what stands in files in one piece)

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitors.workflows.logs import kickstart
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import InputError
from site_selector.mapping.placement import Alternative, Mapping, Move, Placement

FEW = settings(max_examples=50)


def refused_in_one_line(call: Callable[[], object]) -> None:
    try:
        call()
    except InputError as error:
        assert str(error) and "\n" not in str(error)


# ------------------------------------------------------------------------------- submit directory

BRAINDUMP = 'wf_uuid: "1-2"\ndag: "w-0.dag"\ndax_label: "w"\ncondor_log: "w.log"\n'
DAG = 'JOB stage_in_1 00/00/stage_in_1.sub\nVARS stage_in_1 site="mu" x="a\\"b"\nSUBDAG EXTERNAL s s.dag\n'
SUB = '+pegasus_site = "mu"\noutput = $(a)/$(site).out\ninitialdir = d\na = $(b)\nb = $(a)\n'
PIECES = st.sampled_from(
    ["", "\n", ":", '"', "'", "- ", "{", "[", "&a ", "*a", "!!python/object:x", "2001-99-99", "? [a]\n",
     "\t", "$(", "$(a)", "JOB ", "=", "\\", "\x00", "%", "é", "9" * 5000, "<<: ", "dag: "]
)  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn, text: str) -> str:
    """A good text with pieces cut out, doubled or written over."""
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        end = min(end, start + draw(st.sampled_from([0, 1, 8, 10**6])))
        piece = draw(PIECES | st.just(text[start:end] * 2) | st.text(max_size=3))
        text = text[:start] + piece + text[end:]
    return text


def contents(text: str) -> st.SearchStrategy[bytes]:
    return spoiled(text).map(lambda t: t.encode("utf-8", "replace")) | st.binary(max_size=40)


BOMB = b"a: &a [x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 115)
)


@FEW
@given(contents(BRAINDUMP), contents(DAG), contents(SUB))
@example(b"a: 2001-99-99\n", b"", b"")
@example(b"dag: [\n", b"", b"")
@example(b"dag: &a [*a]\n", b"", b"")
@example(b"[" * 5000, b"", b"")
@example(BOMB, DAG.encode(), b"")
@example(b"dag: 'a\\0b'\n", b"", b"")
@example(b'dag: "a\\0b"\n', b"", b"")
@example(BRAINDUMP.encode(), DAG.encode(), b"output = $(a)\na = " + b"$(a)" * 3000)
def test_any_submit_directory(dump: bytes, dag: bytes, sub: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "00" / "00").mkdir(parents=True)
        (path / "braindump.yml").write_bytes(dump)
        (path / "w-0.dag").write_bytes(dag)
        (path / "00" / "00" / "stage_in_1.sub").write_bytes(sub)

        def as_the_monitors_do() -> None:
            submit_dir = SubmitDir(path)
            for name in [*submit_dir.nodes, "stage_in_1", "none"]:
                assert submit_dir.job(name).name == name

        def as_the_hooks_do() -> None:
            files = PlannedFiles(path, "stage_in_1")
            assert files.file(".in").name == "stage_in_1.in"

        refused_in_one_line(as_the_monitors_do)
        refused_in_one_line(as_the_hooks_do)


def test_the_good_directory_is_good(tmp_path: Path) -> None:
    (tmp_path / "braindump.yml").write_text(BRAINDUMP)
    (tmp_path / "w-0.dag").write_text(DAG)
    (tmp_path / "00" / "00").mkdir(parents=True)
    (tmp_path / "00" / "00" / "stage_in_1.sub").write_text(SUB)
    assert SubmitDir(tmp_path).job("stage_in_1").site == "mu"
    listing = PlannedFiles(tmp_path, "stage_in_1").file(".in")
    assert listing == tmp_path / "00" / "00" / "stage_in_1.in"


# ------------------------------------------------------------------------------- kickstart

RECORD = """\
- invocation: True
  start: 2026-11-21T09:49:17.718+00:00
  duration: 0.199
  hostname: "mu.adon.test"
  mainjob:
    status:
      raw: 0
      regular_exitcode: 0
  files:
    one:
      lfn: "one"
      size: 600072
      output: True
    stdin:
      size: 0
    stderr:
      size: 3
      data: |
        abc
"""


@FEW
@given(spoiled(RECORD * 2) | st.text())
@example(RECORD.replace("600072", "9" * 5000))
@example(RECORD.replace("exitcode: 0", "exitcode: " + "9" * 5000))
@example(RECORD.replace("0.199", "nan"))
@example(RECORD.replace("0.199", "1e400"))
@example(RECORD.replace("0.199", "-5"))
@example(RECORD.replace("2026-11-21T09:49:17.718+00:00", "0001-01-01"))
@example(RECORD.replace("600072", "²"))
def test_any_record_of_kickstart(text: str) -> None:
    for invocation in kickstart.invocations(text):
        assert math.isfinite(invocation.start)
        assert math.isfinite(invocation.end)
        assert invocation.end >= invocation.start
        assert all(size >= 0 for size in (invocation.inputs | invocation.outputs).values())
    kickstart.standard_error(text)


# ------------------------------------------------------------------------------- mappings


@st.composite
def junk_inside(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """A mapping with something else in one place."""
    whole: dict[str, Any] = {"top": json.loads(json.dumps(document))}
    inner: Any = whole
    key: Any = "top"
    while isinstance(inner[key], dict | list) and inner[key] and draw(st.booleans()):
        inner = inner[key]
        key = draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
    inner[key] = draw(
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(max_size=2), st.integers(), max_size=1) | st.booleans()
    )  # fmt: skip
    result: dict[str, Any] = whole["top"]
    return result


GOOD = Mapping(
    "w", "p", 1.0, {"p": 1.0},
    (Placement("j", "t", "mu", "r", (Alternative("mu", 0.0, 1.0, 2.0, 3.0, "Γ_a", "a>b", 1.0, 2.0,
     {"n": {"value": 1}}, (Move("a>b", 1.0, 2.0, 3.0),)),)),), {"sites": {}}, "mu", 3,
)  # fmt: skip


@FEW
@given(junk_inside(GOOD.as_dict()))
def test_a_mapping_with_something_else_in_it_is_refused_or_can_be_used(document: Any) -> None:
    def use() -> None:
        mapping = Mapping.from_json(json.dumps(document))
        assert all(isinstance(site, str) for site in mapping.sites.values())
        json.dumps(mapping.as_dict(), allow_nan=False)

    refused_in_one_line(use)
