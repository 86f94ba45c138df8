"""Traces of executed workflows: what is read, what is filled in, what is refused and how."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.errors import InputError
from site_selector.evaluation.traces import parse, read_file, read_folder

GOOD: dict[str, Any] = {
    "name": "small",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {
                    "name": "merge_ID0000003", "id": "merge_ID0000003",
                    "parents": ["map_ID0000001", "map_ID0000002"], "children": [],
                    "inputFiles": ["a.out", "b.out", "genome"], "outputFiles": ["all.out"],
                },
                {
                    "name": "map_ID0000001", "id": "map_ID0000001", "parents": [],
                    "children": ["merge_ID0000003"],
                    "inputFiles": ["a", "genome"], "outputFiles": ["a.out"],
                },
                {
                    "name": "map_ID0000002", "id": "map_ID0000002", "parents": [],
                    "children": ["merge_ID0000003"],
                    "inputFiles": ["b", "genome"], "outputFiles": ["b.out"],
                },
            ],
            "files": [
                {"id": name, "sizeInBytes": size}
                for name, size in {
                    "a": 10, "b": 20, "genome": 1000, "a.out": 5, "b.out": 0, "all.out": 7,
                }.items()
            ],
        },
        "execution": {
            "makespanInSeconds": 9,
            "tasks": [
                {"id": "map_ID0000001", "runtimeInSeconds": 3, "command": {"program": "map"}},
                {"id": "map_ID0000002", "runtimeInSeconds": 4.5},
                {"id": "merge_ID0000003", "runtimeInSeconds": 0, "coreCount": 1},
            ],
        },
    },
}  # fmt: skip
AT = "the file: workflow"


def changed(path: str, value: Any) -> Any:
    """The good trace with one place different; a path is keys and indices."""
    root = copy.deepcopy(GOOD)
    *way, last = path.split("/")
    here = root["workflow"]
    for step in way:
        here = here[int(step) if step.isdecimal() else step]
    key: Any = int(last) if last.isdecimal() else last
    if value is None:
        del here[key]
    else:
        here[key] = value
    return root


def test_a_trace_is_read() -> None:
    trace = parse(GOOD, "small-lab-001")
    assert trace.family == "small"
    assert trace.tasks == ("map_ID0000001", "map_ID0000002", "merge_ID0000003")
    assert trace.kinds == ("map", "map", "merge")
    assert trace.runtime_s == (3, 4.5, 0)
    assert trace.parents == ((), (), (0, 1))
    assert trace.children == ((2,), (2,), ())
    assert trace.level == (0, 0, 1)
    files = dict(zip(trace.files, trace.size_bytes, strict=True))
    assert files == {"a": 10, "genome": 1000, "a.out": 5, "b": 20, "b.out": 0, "all.out": 7}
    genome = trace.files.index("genome")
    assert trace.producer[genome] == -1
    assert trace.readers[genome] == (0, 1, 2)
    assert trace.producer[trace.files.index("b.out")] == 1
    assert trace.notes == ()


@pytest.mark.parametrize(
    ("path", "value", "note"),
    [
        ("execution/tasks/0", None, "1 task without a run time (such as map_ID0000001)"),
        ("specification/files/3", None, "1 file without a size (such as a.out), taken as 0"),
        ("specification/files", None, "6 files without a size"),
        ("execution/tasks/2/coreCount", 8, "1 tasks on several cores (such as merge_ID0000003)"),
        (
            "specification/tasks/1/inputFiles",
            ["b.out"],
            "1 edges that follow from files only, added",
        ),
        ("specification/tasks/1/inputFiles", ["a.out"], "1 files that a task reads and writes"),
    ],
)
def test_what_is_missing_is_filled_in_and_said(path: str, value: Any, note: str) -> None:
    assert any(line.startswith(note) for line in parse(changed(path, value), "t").notes)


def test_a_missing_run_time_is_the_median_of_the_kind() -> None:
    trace = parse(changed("execution/tasks/1", None), "t")
    assert trace.runtime_s == (3, 3, 0)


def test_tasks_without_files_are_fine() -> None:
    root = copy.deepcopy(GOOD)
    for task in root["workflow"]["specification"]["tasks"]:
        task.pop("inputFiles")
        task["outputFiles"] = None
    assert parse(root, "t").reads == ((), (), ())


def test_one_side_of_an_edge_is_enough() -> None:
    root = changed("specification/tasks/0/parents", [])
    root["workflow"]["specification"]["tasks"][2]["children"] = []
    root["workflow"]["specification"]["tasks"][0]["inputFiles"] = []
    assert parse(root, "t").parents == ((), (), (0,))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "specification/tasks/1/id", "map_ID0000002",
            "found task 'map_ID0000002' twice, expected every id once",
        ),
        (
            "specification/tasks/1/parents", ["merge_ID0000003"],
            "found a cycle merge_ID0000003 -> map_ID0000001 -> merge_ID0000003, expected none",
        ),
        ("specification/tasks/1/parents", ["map_ID0000001"], "found a cycle map_ID0000001 -> map"),
        (
            "specification/tasks/1/children", ["nobody"],
            "task map_ID0000001: found child 'nobody', expected the id of a task",
        ),
        (
            "specification/tasks/1/parents", "x",
            f"{AT}.specification.tasks.1.parents: found 'x', expected a list",
        ),
        (
            "specification/files/0/sizeInBytes", -1,
            f"{AT}.specification.files.0.sizeInBytes: found -1, expected 0",
        ),
        (
            "specification/files/0/sizeInBytes", "10",
            f"{AT}.specification.files.0.sizeInBytes: found '10', expected a number",
        ),
        ("specification/files/0/id", "b", "file b: found sizes 10 and 20 bytes, expected one"),
        (
            "specification/tasks/1/outputFiles", ["b.out"],
            "file 'b.out': found two tasks that write it, map_ID0000001 and map_ID0000002",
        ),
        (
            "execution/tasks/0/runtimeInSeconds", -3,
            f"{AT}.execution.tasks.0.runtimeInSeconds: found -3, expected 0",
        ),
        (
            "execution/tasks/0/runtimeInSeconds", 10**400,
            f"{AT}.execution.tasks.0.runtimeInSeconds: found 1000",
        ),
        ("execution/tasks/0/id", "map_ID0000002", "task map_ID0000002: found two executions"),
        ("execution/tasks/0/id", "other", "task other: found an execution of it, expected it in"),
        ("execution", None, "found no task with a run time, expected runtimeInSeconds of each"),
        ("execution", [], f"{AT}.execution: found [], expected a mapping"),
        ("specification", None, "workflow: found neither specification (WfFormat 1.5) nor tasks"),
        ("specification/tasks", [], "found no tasks, expected at least one"),
        ("specification/tasks", {}, f"{AT}.specification.tasks: found {{}}, expected a"),
        ("specification/tasks/0", 7, f"{AT}.specification.tasks.0: found 7, expected a"),
        ("specification/tasks/0/id", "", f"{AT}.specification.tasks.0.id: found '', exp"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(path: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(changed(path, value), "t")
    assert str(caught.value).startswith(said)


def old(version: str) -> dict[str, Any]:
    """A trace in the shape before 1.5, with the field names of the version."""
    runtime, size = ("runtimeInSeconds", "sizeInBytes") if version == "1.4" else ("runtime", "size")
    link = [{"link": "output", "name": "x", size: 4}]
    tasks = [
        {"name": "a_ID1", "parents": [], "files": link, runtime: 2},
        {
            "name": "b_ID2", "parents": ["a_ID1"], runtime: 3, "cores": 1,
            "files": [{"link": "input", "name": "x", size: 4}],
        },
    ]  # fmt: skip
    key = "jobs" if version == "1.1" else "tasks"
    return {"schemaVersion": version, "workflow": {key: tasks, "machines": []}}


def test_what_version_1_6_adds_changes_nothing() -> None:
    root = changed("specification/metrics", {"taskCount": 3, "levels": [2, 1]})
    root |= {"schemaVersion": "1.6"}
    root["workflow"]["execution"]["metrics"] = {"totalWorkInSeconds": 7.5}
    assert parse(root, "small") == parse(GOOD, "small")


@pytest.mark.parametrize("version", ["1.1", "1.3", "1.4"])
def test_earlier_versions_are_read(version: str) -> None:
    trace = parse(old(version), "t")
    assert (trace.tasks, trace.kinds) == (("a_ID1", "b_ID2"), ("a", "b"))
    assert (trace.runtime_s, trace.size_bytes) == ((2, 3), (4,))
    assert trace.parents == ((), (0,))


def test_a_file_of_an_earlier_version_has_a_direction() -> None:
    root = old("1.4")
    root["workflow"]["tasks"][0]["files"][0]["link"] = "sideways"
    with pytest.raises(
        InputError, match=r"files\.0\.link: found 'sideways', expected one of 'input' or"
    ):
        parse(root, "t")


def test_a_folder_is_read_in_order_and_what_is_no_trace_left_out(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a-1.json").write_text(json.dumps(GOOD))
    (tmp_path / "z-1.json").write_text(json.dumps(GOOD))
    (tmp_path / "schema.json").write_text('{"$schema": "x", "title": "WfFormat"}')
    (tmp_path / "README.md").write_text("words")
    traces, skipped = read_folder(tmp_path)
    assert [trace.path for trace in traces] == ["below/a-1.json", "z-1.json"]
    assert [trace.trace.family for trace in traces] == ["a", "z"]
    assert skipped == [f"{tmp_path}/schema.json: not a trace, left out"]
    assert read_folder(tmp_path / "z-1.json")[0][0].trace == traces[1].trace


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found nothing in it, expected JSON"),
        ("{", "found Expecting property name enclosed in double quotes"),
        ("[" * 100_000, "found maximum recursion depth exceeded"),
        ('{"workflow": NaN}', "found the number NaN, expected JSON"),
        ("[]", "the file is [], expected a mapping"),
        ('{"workflow": 3}', "the file: workflow: found 3, expected a mapping"),
        ('{"schemaVersion": "1.5"}', "the file has no 'workflow', expected it"),
        ('{"workflow": {"jobs": []}}', "found no tasks, expected at least one"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_file(path, "bad.json")
    assert str(caught.value).startswith(f"{path}: {said}")


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(b'{"name": "\xff\xfe"}')
    with pytest.raises(InputError, match=r"bad\.json: found .*can't decode byte"):
        read_file(path, "bad.json")


def test_one_bad_file_stops_the_reading_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(json.dumps(GOOD))
    (tmp_path / "bad1.json").write_text("no")
    (tmp_path / "bad2.json").write_text("no")
    with pytest.raises(InputError) as caught:
        read_folder(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/bad1.json: found ")
    assert str(caught.value).endswith("(and 1 more that cannot be used)")


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no trace, expected WfFormat files"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="found nothing, expected a folder of WfFormat"):
        read_folder(tmp_path / "gone")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["workflow", "tasks", "files", "id", "name", "parents", "specification"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=80)
@given(st.data())
def test_any_change_to_a_good_trace_is_read_or_refused(data: st.DataObject) -> None:
    root = copy.deepcopy(GOOD)
    holder: Any = root["workflow"]
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = data.draw(st.sampled_from(keys))
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            holder[key] = data.draw(JSON)
            break
        holder = inner
    try:
        trace = parse(root, "t")
    except InputError as error:
        assert "expected" in str(error)
    else:
        assert all(size >= 0 for size in trace.size_bytes)
        for task, parents in enumerate(trace.parents):
            assert all(parent < task for parent in parents)
