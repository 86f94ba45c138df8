"""Reading abstract workflows: what is found in them, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_world import job, workflow_text

from network_provisioner.base.errors import InputError
from site_selector.catalogs.documents import MAX_BYTES, parse_document, read_document
from site_selector.catalogs.workflow import parse_workflow, read_workflow

DIAMOND = [
    job("split", "split", ["in"], ["left", "right"], sizes={"in": 1000}, keep=["left", "right"]),
    job("a", "work", ["left"], ["l.out"], keep=["l.out"]),
    job("b", "work", ["right"], ["r.out"], keep=["r.out"]),
    job("join", "join", ["l.out", "r.out"], ["out"]),
]


def test_a_diamond_and_its_edges_from_data() -> None:
    flow = parse_workflow(workflow_text(DIAMOND))
    assert flow.order == ("split", "a", "b", "join")
    assert flow.parents["join"] == ("a", "b")
    assert dict(flow.level) == {"split": 0, "a": 1, "b": 1, "join": 2}
    assert flow.jobs["a"].transformation == "t::work:1.0"
    assert flow.files["in"].size_bytes == 1000
    assert flow.files["in"].producer is None
    assert flow.files["left"].producer == "split"
    assert [f.lfn for f in flow.files.values() if f.stage_out] == ["out"]


def test_declared_edges_are_kept_beside_those_of_data() -> None:
    jobs = [job("x", "a"), job("y", "a"), job("z", "a")]
    flow = parse_workflow(workflow_text(jobs, {"z": ["x"], "x": ["y"]}))
    assert flow.order == ("z", "x", "y")
    assert flow.children["z"] == ("x",)


def test_profiles_of_a_job() -> None:
    flow = parse_workflow(
        workflow_text(
            [
                job(
                    "x",
                    "a",
                    selector={"execution.site": "mu"},
                    pegasus={"runtime": "90", "cores": 4, "memory": 2048},
                )
            ]
        )
    )
    parsed_job = flow.jobs["x"]
    assert (parsed_job.site_hint, parsed_job.runtime_s, parsed_job.cores, parsed_job.memory_mb) == (
        "mu",
        90,
        4,
        2048,
    )


def test_text_is_kept_as_it_is_written() -> None:
    text = "pegasus: 5.0\njobs:\n- {type: job, name: bwa, version: 1.10, id: 0012}\n"
    flow = parse_workflow(text, "wf.yml")
    assert flow.jobs["0012"].transformation == "bwa:1.10"
    assert flow.name == "wf"


def test_size_may_stand_in_metadata() -> None:
    entry = job("x", "a", ["f"])
    entry["uses"] = [{"lfn": "f", "type": "input", "metadata": {"size": "12"}}]
    assert parse_workflow(workflow_text([entry])).files["f"].size_bytes == 12


def test_of_several_writers_readers_follow_the_last_as_in_pegasus() -> None:
    jobs = [job("x", "a", [], ["f"]), job("z", "a", ["f"]), job("y", "a", [], ["f"])]
    workflow = parse_workflow(workflow_text(jobs))
    assert workflow.files["f"].producer == "y"
    assert (workflow.parents["z"], workflow.jobs["x"].outputs) == (("y",), ("f",))


def _with(**change: object) -> str:
    return workflow_text([{**job("x", "a", ["f"]), **change}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (workflow_text([job("x", "a", ["f"], ["g"]), job("y", "a", ["g"], ["f"])]),
         "jobs form a cycle: x -> y -> x"),
        (workflow_text([job("x", "a")], {"x": ["x"]}), "jobs form a cycle: x -> x"),
        (workflow_text([job("x", "a"), job("y", "a"), job("z", "a")],
                       {"x": ["y"], "y": ["z"], "z": ["y"]}), "jobs form a cycle: y -> z -> y"),
        (workflow_text([job("x", "a"), job("x", "a")]), "job id 'x' is used twice"),
        (workflow_text([job("x", "a", ["f"], ["f"])]), "job x reads and writes file 'f'"),
        (workflow_text([job("xavier", "a")], {"xaver": ["xavier"]}),
         "unknown job 'xaver', did you mean 'xavier'?"),
        (_with(type="task"), "found type 'task', expected job, pegasusWorkflow"),
        (_with(id=None), "a job has no id"),
        (_with(name=None), "job x names no transformation"),
        (_with(uses=[{"lfn": "f", "type": "input", "size": "big"}]), "size of 'f' is 'big', expec"),
        (_with(uses=[{"lfn": "f", "type": "inout"}]), "type 'inout', expected input"),
        (_with(uses=[{"type": "input"}]), "a file it uses has no lfn"),
        (_with(profiles={"pegasus": {"memory": "much"}}), "job x: memory is 'much'"),
        (_with(profiles=[1]), "profiles are not a mapping"),
        ("name: x\n", "no list of jobs"),
        ("", "found an empty file"),
        ("- a\n", "found a list"),
        ("a: [1\nb: 2\n", "not valid YAML"),
        ("a: *b\n", "alias *b has no anchor"),
        ("<?xml version='1.0'?><adag/>", "no list of jobs"),
        ("<?xml version='1.0'?><adag version='0.8'/>",
         "found XML <adag 0.8>, a workflow in an unknown form, expected Pegasus 5 abstract work"),
    ],
)  # fmt: skip
def test_bad_workflows_are_named(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_workflow(text, "wf.yml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("wf.yml:")
    assert "\n" not in str(caught.value)


def test_errors_name_the_line() -> None:
    text = (
        "pegasus: 5.0.4\nname: w\njobs:\n"
        "- type: job\n  name: a\n  id: x\n"
        "- type: job\n  name: a\n  id: y\n  uses:\n  - lfn: f\n    type: none\n"
    )
    with pytest.raises(InputError, match=r"^wf\.yml:11: job y: file 'f' has type 'none'"):
        parse_workflow(text, "wf.yml")


def test_missing_and_huge_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory, expected a Pegasus 5"):
        read_workflow(tmp_path / "none.yml")
    huge = tmp_path / "huge.yml"
    with huge.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match=r"150 MB, expected .* at most 150 MB"):
        read_document(huge, "workflow")


def test_merge_keys_and_aliases() -> None:
    text = "base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nsame: *b\n"
    root = parse_document(text, "x", "x").root
    assert root["use"] == {"x": "1", "y": "3"}
    assert root["same"] == root["base"] == {"x": "1", "y": "2"}


def test_lines_of_paths() -> None:
    text = "a: 1\nb:\n- c: 2\n  d: {e: 1,\n   f: 2}\n- x\n"
    document = parse_document(text, "x", "x")
    paths: list[tuple[str | int, ...]] = [("a",), ("b", 0, "c"), ("b", 0, "d", "f"), ("b", 1)]
    assert [document.line(path) for path in paths] == [1, 3, 5, 6]
    assert document.line(("b", 0, "missing")) == 3
    assert document.line(("missing",)) == 1
