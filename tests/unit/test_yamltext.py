"""The ways of reading YAML agree with each other and with PyYAML, whatever the text."""

# ruff: noqa: E501  (messages in one piece can be searched for)

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from site_world import job, workflow_text

from network_provisioner.errors import InputError
from site_selector import blocktext, yamlevents, yamltext
from site_selector.blocktext import NotPlainError, read_sections
from site_selector.yamlevents import build_tree
from site_selector.yamltext import parse_document, read_document

PATIENT = settings(deadline=None)


def by_events(text: str) -> Any:
    """What the general parser makes of a text, or None where it refuses it."""
    try:
        return build_tree(text, "x.yml")
    except (InputError, yaml.YAMLError):
        return None


def by_lines(text: str) -> Any:
    """What the reader of long lists makes of it, or None where it leaves it to the other."""
    try:
        with mock.patch.object(blocktext, "_START_BYTES", 0):  # however short the text
            return read_sections(text, lambda part: build_tree(part, "x.yml", alone=True))[0]
    except (NotPlainError, InputError, yaml.YAMLError):
        return None


# Lines as they stand in workflows, and every kind of trouble: wrong columns, quotes and brackets
# that do not close, scalars over several lines, comments, anchors, markers of documents.
WORDS = st.sampled_from(
    [
        "a", "b", "type", "null", "~", "<<", "1.10", "-t", "-", "--", "---", "...", "a b", "a:b",
        "a: b", "a #b", "a#b", "#c", "x:", "'", "''", "'a'", "'a''b'", "'a' b", '"', '"a"', '"\\n"',
        '"a', "[]", "{}", "[", "]", "{a: b}", "{a: b", "[a, b]", "&a", "*a", "&a x", "!t",
        "!!str x", "|", ">", "|2", "? a", ": a", "@x", "%x", "`", "a ", " a", "a\tb", "é", "\u2028", "\x85",
        "\x01", "http://h:1/x", "\\d", "(x)", "=", "<x", "adon-list-0", "jobs", "True", ",", "a,b",
        "", "  ", "many words in a row that are folded", "some - of # them: 'odd' and more of them",
    ]
)  # fmt: skip
LINE = st.builds(
    lambda indent, dash, key, value: " " * indent + dash + key + value,
    st.sampled_from([0, 0, 0, 2, 2, 2, 4, 4, 1, 3, 6]),
    st.sampled_from(["", "", "- ", "- ", "-", "- - ", "-  "]),
    st.sampled_from(["", "a: ", "b: ", "a:", "jobs: ", "'k': ", "null: ", "<<: ", "a b: "]),
    WORDS,
)
TEXTS = st.lists(LINE | st.sampled_from(["jobs:", "a:", "b:", "- a: 1", "", "# c", "---"])).map(
    "\n".join
)


TREES = st.recursive(
    st.none() | st.text(max_size=6) | WORDS | st.sampled_from(["true", "12", "0x1", "1e5"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | WORDS, inner, max_size=4)
    ),
    max_leaves=25,
)
DOCUMENTS = st.dictionaries(
    st.sampled_from(["jobs", "sites", "name", "x-pegasus"]),
    st.lists(st.dictionaries(st.sampled_from("abc"), TREES, min_size=1)) | TREES,
    min_size=1,
)


def is_plain(value: Any) -> bool:
    """Without merge keys, and without the line breaks that PyYAML folds into others."""
    return not any(c in repr(value) for c in ("<<", "\\x85", "\\u2028", "\\u2029"))


@st.composite
def spliced(draw: st.DrawFn) -> str:
    """What YAML writes of a tree, with a line or two more, less or otherwise."""
    text = yaml.safe_dump(draw(DOCUMENTS), sort_keys=False, width=draw(st.sampled_from([20, 200])))
    lines = text.split("\n")
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(lines) - 1))
        column = len(lines[at]) - len(lines[at].lstrip(" "))
        new = " " * draw(st.sampled_from([column, column, column + 2, 0])) + draw(LINE).lstrip(" ")
        match draw(st.integers(0, 3)):
            case 0:
                lines[at] = new
            case 1:
                del lines[at : at + 1]
                lines = lines or [""]
            case 2:
                lines[at] += draw(st.sampled_from(["x", " x", " # c", ":", " ", "'", "\t"]))
            case _:
                lines.insert(at, new)
    return "\n".join(lines)


@settings(PATIENT, max_examples=1000)
@given(spliced() | TEXTS.map(lambda t: "jobs:\n- a: 1\n" + t) | TEXTS)
@example("jobs:\n- a: 1\n# c\n  b: 2\nc: 3")
@example('x: "abc\njobs:\n- a\n"\njobs:\n')
@example("{\njobs:\n- a\n}")
@example("x: {a: 1,\njobs:\n- a\n}")
@example("jobs:\n  - a: 1\n x: 1\n")
@example("jobs:\n  - a: 1\n foo\n")
@example("jobs:\n- &a x\n- *a\n")
@example("b: &a 1\njobs:\n- &a 2\n- 3\nc: *a\n")
@example("jobs:\n- a\nb: adon-list-0\n")
@example("jobs:\n- a\njobs:\n- b\n")
@example("jobs:\n- a\n---\nb:\n- c\n")
@example("jobs:\n- a: |\n    x\n   y\n- b\n")
@example("jobs:\n-\n- a\n")
@example("jobs:\n- a:\n  - b\n  -\n")
@example("jobs:\n- 'a\n- b'\n- c\n")
def test_lines_are_read_as_the_general_parser_reads_them(text: str) -> None:
    found = by_lines(text)
    if found is not None:
        assert found == by_events(text)


@PATIENT
@given(DOCUMENTS.filter(is_plain), st.booleans(), st.sampled_from([20, 80, 10_000]))
def test_what_yaml_writes_is_read_back(
    value: dict[str, Any], flow: bool | None, width: int
) -> None:
    text = yaml.safe_dump(
        value, sort_keys=False, allow_unicode=True, width=width, default_flow_style=flow
    )
    assert parse_document(text, "x.yml", "x").root == value
    crlf = text.replace("\n", "\r\n")
    if "\r" not in text:
        assert parse_document(crlf, "x.yml", "x").root == value


@PATIENT
@given(DOCUMENTS.filter(is_plain), st.sampled_from([None, 1, "\t"]))
def test_what_json_writes_is_read_back(value: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    assert parse_document(text, "x.json", "x").root == value


def test_json_keeps_its_numbers_and_truths_as_text() -> None:
    text = '{"a": [1.10, true, [false, null], {"b": 1E5}], "c": NaN, "d": -0, "e": true}'
    found = parse_document(text, "x.json", "x").root
    assert found == by_events(text)
    assert found["a"] == ["1.10", "true", ["false", None], {"b": "1E5"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "a": 2}', "x.json:2: key 'a' is given twice"),
        ('{"a": 1,\n "b": [1, 2}', "x.json:2: not valid YAML"),
        ('{"a": "\\ud800"}', "x.json:1: not valid YAML"),
        ('{"a": ' * 50_000, "x.json:1: more than 200 levels, expected fewer"),
    ],
)
def test_json_that_is_none(text: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        parse_document(text, "x.json", "x")
    assert str(found.value).startswith(said)
    assert "\n" not in str(found.value)


@PATIENT
@given(st.text() | TEXTS | spliced())
def test_any_text_is_a_document_or_one_line(text: str) -> None:
    try:
        document = parse_document(text, "x.yml", "workflow")
    except InputError as error:
        assert str(error).isprintable()
        assert str(error).startswith("x.yml")
    else:
        assert document.root == by_events(text.replace("\r\n", "\n"))


def lines_of(text: str) -> dict[tuple[Any, ...], int]:
    """Every path of a document with its line, by the whole text."""
    paths: list[tuple[Any, ...]] = []

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        paths.append(path)
        items: Any = value.items() if isinstance(value, dict) else ()
        items = enumerate(value) if isinstance(value, list) else items
        for key, inner in items:
            walk(inner, (*path, key))

    walk(by_events(text), ())
    return {path: yamlevents.find_line(text, path) for path in paths}


@PATIENT
@given(DOCUMENTS.filter(is_plain))
def test_lines_within_long_lists_are_those_of_the_whole(value: dict[str, Any]) -> None:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    document = parse_document(text, "x.yml", "x")
    assert {path: document.line(path) for path in lines_of(text)} == lines_of(text)


def test_the_long_lists_of_a_workflow_are_read_by_lines() -> None:
    text = workflow_text(
        [job(f"j{i}", "a", [f"f{i}"], [f"g{i}"]) for i in range(3)], {"j0": ["j1"]}
    )
    document = parse_document(text, "x.yml", "x")
    assert {key: (len(s), s.odd) for key, s in document.sections.items()} == {
        "jobs": (3, set()),
        "jobDependencies": (1, set()),
    }
    odd = text.replace("name: a\n", "name: >\n    a\n", 1)
    assert parse_document(odd, "x.yml", "x").sections["jobs"].odd == {0}


def refused(path: Path | str) -> str:
    with pytest.raises(InputError) as found:
        read_document(path, "Pegasus 5 workflow")
    return str(found.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refused(pipe) == f"{pipe}: found a pipe, expected a Pegasus 5 workflow in a file"
    assert refused(tmp_path).endswith(": Is a directory, expected a Pegasus 5 workflow")
    assert "found an empty file" in refused("/dev/null")
    assert "embedded null byte" in refused("a\0b")
    assert "File name too long" in refused("a" * 300)
    file = tmp_path / "x.yml"
    for content, said in [
        (b"", ":1: found an empty file, expected a Pegasus 5 workflow (a mapping)"),
        (b"\n\n# nothing\n", ":1: found an empty file, expected"),
        (b"\xef\xbb\xbf", ":1: found an empty file, expected"),
        ("a: é".encode("latin-1"), ": byte 3 is not UTF-8, expected a Pegasus 5 workflow as text"),
        ("a: 1".encode("utf-16"), ": byte 0 is not UTF-8"),
        (b"a: \x00", ": not valid YAML: unacceptable character"),
        (b"a:\n\t- b\n", ":2: not valid YAML: found character that cannot start any token"),
    ]:
        file.write_bytes(content)
        assert refused(file).startswith(f"{file}{said}")
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n- c\r\n")
    assert read_document(file, "x").root == {"a": "1", "b": ["c"]}


def test_what_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamlevents, "MAX_EVENTS", 100)
    with pytest.raises(InputError, match=r"^x: found more than 100 values and brackets, expected"):
        parse_document("a: [" + "b," * 100 + "]", "x", "x")
    monkeypatch.setattr(yamltext, "MAX_LINES", 10)
    with pytest.raises(InputError, match=r"^x: found more than 10 lines, expected a w of at most"):
        parse_document("a:\n" + "- b\n" * 10, "x", "w")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<?xml version="1.0"?>\n<!-- x -->\n<adag xmlns="http://x" version="3.6" name="w">',
         "found XML <adag 3.6>, a workflow of Pegasus 4 or older, expected Pegasus 5 workflow YAML; "
         "have its generator write it by the Pegasus.api package"),
        ("\n <sitecatalog version='4.0'>", "found XML <sitecatalog 4.0>, a site catalog of Pegasus 4, "
         "expected Pegasus 5 workflow YAML; convert it by 'pegasus-sc-converter "),
        ("<html>", "found XML <html>, expected Pegasus 5 workflow YAML"),
        ("<" * 30_000, "found XML, expected"),
        ("<" + "a" * 30_000, "found XML, expected"),
        ('# my catalog\ntr soykb::bwa:1.0 {\n site mu {\n pfn "/x"\n', "found a transformation catalog "
         "of Pegasus 4 as text, expected Pegasus 5 workflow YAML; convert it by 'pegasus-tc-conv"),
        ('f.a file:///x/f.a site="local"\n', "found a replica catalog of Pegasus 4 as text, expected "
         "Pegasus 5 workflow YAML; convert it by 'pegasus-rc-converter "),
    ],
)  # fmt: skip
def test_files_of_pegasus_4_are_told_apart(text: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        parse_document(text, "x.xml", "Pegasus 5 workflow")
    assert str(found.value).startswith(f"x.xml: {said}")


def test_errors_are_printable_and_short() -> None:
    document = parse_document("a: 1", "x", "x")
    assert str(document.error(("a",), "found 'a\nb\x1b[31m\u2028'")) == (
        "x:1: found 'a\\nb\\x1b[31m\\u2028'"
    )
    assert len(str(document.error((), "x" * 10**6))) < 2100
