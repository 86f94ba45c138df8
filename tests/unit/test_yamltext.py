"""YAML is read as PyYAML reads it, whatever the text; what is none is refused in one line."""

# ruff: noqa: E501  (messages in one piece can be searched for)

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.base.errors import InputError
from site_selector.catalogs import documents as yamltext
from site_selector.catalogs.documents import build_tree, parse_document, read_document

FEW = settings(max_examples=40)
WORDS = st.sampled_from(
    [
        "a", "type", "null", "~", "<<", "1.10", "-t", "-", "---", "...", "a b", "a: b", "a #b", "#c",
        "x:", "'", "'a''b'", '"\\n"', "[", "{a: b}", "&a x", "*a", "!!str x", "|", "? a", "@x", "%x", " a",
        "a\tb", "é", "\u2028", "\x01", "True", "", "many words in a row that are folded", "12", "0x1", "1e5",
    ]
)  # fmt: skip
TREES = st.recursive(
    st.none() | st.text(max_size=6) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | WORDS, inner, max_size=4)
    ),
    max_leaves=25,
)
DOCUMENTS = st.dictionaries(st.sampled_from(["jobs", "name"]), TREES, min_size=1)


def is_plain(value: Any) -> bool:
    """Without merge keys, and without the line breaks that PyYAML folds into others."""
    return not any(c in repr(value) for c in ("<<", "\\x85", "\\u2028", "\\u2029"))


@FEW
@given(DOCUMENTS.filter(is_plain), st.booleans(), st.sampled_from([20, 10_000]))
def test_what_yaml_writes_is_read_back(value: dict[str, Any], flow: bool, width: int) -> None:
    text = yaml.safe_dump(
        value, sort_keys=False, allow_unicode=True, width=width, default_flow_style=flow
    )
    assert parse_document(text, "x.yml", "x").root == value
    if "\r" not in text:
        assert parse_document(text.replace("\n", "\r\n"), "x.yml", "x").root == value


@FEW
@given(DOCUMENTS.filter(is_plain), st.sampled_from([None, 1, "\t"]))
def test_what_json_writes_is_read_back(value: dict[str, Any], indent: int | str | None) -> None:
    assert parse_document(json.dumps(value, indent=indent), "x.json", "x").root == value


@FEW
@given(st.text() | st.lists(WORDS).map("\n".join))
def test_any_text_is_a_document_or_one_line(text: str) -> None:
    try:
        parse_document(text, "x.yml", "workflow")
    except InputError as error:
        assert str(error).isprintable()
        assert str(error).startswith("x.yml")


def test_json_keeps_its_numbers_and_truths_as_text() -> None:
    text = '{"a": [1.10, true, [false, null], {"b": 1E5}], "c": NaN, "d": -0, "e": true}'
    root = parse_document(text, "x.json", "x").root
    assert root == build_tree(text)
    assert root["a"] == ["1.10", "true", ["false", None], {"b": "1E5"}]


@pytest.mark.parametrize("text", ['{"a": true, "b": 1, "a": [2]}', "a: {c: 1}\nb: 1\na: [2]\n"])
def test_of_a_key_given_twice_the_last_holds_as_in_pegasus(text: str) -> None:
    assert parse_document(text, "x", "x").root == {"a": ["2"], "b": "1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b": [1, 2}', "x.json:2: not valid YAML"),
        ('{"a": "\\ud800"}', "x.json:1: not valid YAML"),
        ('{"a": ' * 50_000, "x.json:1: more than 200 levels, expected fewer"),
    ],
)
def test_json_that_is_none(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_document(text, "x.json", "x")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def refused(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        read_document(path, "Pegasus 5 workflow")
    return str(caught.value)


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
    monkeypatch.setattr(yamltext, "MAX_EVENTS", 100)
    with pytest.raises(InputError, match=r"^x: found more than 100 values and brackets, expected"):
        parse_document("a: [" + "b," * 100 + "]", "x", "x")


MANY = "{" + ", ".join(f"k{i}: {i}" for i in range(1000)) + "}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a: &a {MANY}\nb: {{<<: [{', '.join(['*a'] * 99)}]}}", "x:2: aliases expand to more than"),
        (f"a: &a {MANY}\nb:\n" + "- {<<: *a}\n" * 99, "x:12: aliases expand to more than 20,000 v"),
        ("a0: &a0 x\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]\n" for i in range(1, 9)), "x:6: "),
        ("a: &a [*a]", "x:1: alias *a is inside the node that it names"),
        ("a: &a {<<: {b: *a}}", "x:1: alias *a is inside the node that it names"),
    ],
)  # fmt: skip
def test_aliases_that_would_fill_the_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    # The limit for configuration is a hundredth of that for workflows; both are counted alike.
    monkeypatch.setattr(build_tree, "__defaults__", (False, 200, 20_000))
    with pytest.raises(InputError) as caught:
        parse_document(text, "x", "x")
    assert str(caught.value).startswith(message)
    assert parse_document(f"a: &a {MANY}\nb: [*a, *a, {{<<: [*a]}}]", "x", "x").root


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<?xml version="1.0"?>\n<!-- x -->\n<adag xmlns="http://x" version="0.8" name="w"/>',
         "found XML <adag 0.8>, a workflow in an unknown form, expected Pegasus 5 workflow YAML; "
         "have its generator write it by the Pegasus.api package"),
        ("\n <sitecatalog version='3.0'/>", "found XML <sitecatalog 3.0>, a site catalog of Pegasus 3 "
         "or older, expected Pegasus 5 workflow YAML; convert it by 'pegasus-sc-converter "),
        ("<html>", "found XML <html>, expected Pegasus 5 workflow YAML"),
        ("<" * 30_000, "found XML, expected"),
        ("<" + "a" * 30_000, "found XML, expected"),
        ('f.a file:///x/f.a site="local"\n', "found a replica catalog of Pegasus 4 as text, expected "
         "Pegasus 5 workflow YAML; convert it by 'pegasus-rc-converter "),
    ],
)  # fmt: skip
def test_files_in_older_forms_are_told_apart(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_document(text, "x.xml", "Pegasus 5 workflow")
    assert str(caught.value).startswith(f"x.xml: {message}")


def test_errors_are_printable_and_short() -> None:
    document = parse_document("a: 1", "x", "x")
    assert str(document.error(("a",), "found 'a\nb\x1b[31m\u2028'")) == (
        "x:1: found 'a\\nb\\x1b[31m\\u2028'"
    )
    assert len(str(document.error((), "x" * 10**6))) < 2100
