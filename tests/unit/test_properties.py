"""Property files are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_selector.catalogs import properties


# What java.util.Properties.load makes of each, seen with JDK 17.
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b", {"a": "b"}),
        ("  a : b \r\n\tc   d e", {"a": "b ", "c": "d e"}),
        ("a==b\nc=:d\ne = = f", {"a": "=b", "c": ":d", "e": "= f"}),
        ("# x=y\n  ! a=b\n\n\n", {}),
        ("a = one \\\n    two\\\n\nb=c", {"a": "one two", "b": "c"}),
        ("a = b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("# no continuation \\\na=b", {"a": "b"}),
        ("\\\n# still a comment\na=b", {"a": "b"}),
        ("a\\ b\\=c=d\\te\\q", {"a b=c": "d\teq"}),
        ("a=\\u00e9\\ud83d\\ude00", {"a": "é😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a\fb", {"a": "b"}),
    ],
)
def test_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert properties.parse(text) == values


def test_a_broken_escape_is_refused_as_java_does() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        properties.parse("a=\\u12")


def test_lines_are_numbered() -> None:
    text = "# x\na=1\n\nb=2 \\\n  3\nc=4"
    assert list(properties.entries(text)) == [(2, "a", "1"), (5, "b", "2 3"), (6, "c", "4")]


@given(st.text(max_size=60))
def test_anything_parses_or_is_a_value_error(text: str) -> None:
    try:
        values = properties.parse(text)
    except ValueError:
        return
    assert all(isinstance(word, str) for pair in values.items() for word in pair)


@given(st.text(max_size=60))
def test_an_escaped_value_comes_back_whole_and_is_ascii(value: str) -> None:
    line = f"key = {properties.escape(value)}\n"
    assert line.isascii()
    assert properties.parse(line) == {"key": value}


def test_variables_are_filled_from_what_is_known() -> None:
    values = {"a": "${home}/x", "b": "${a}", "c": "${no.such}-", "d": "$x {y}"}
    assert properties.fill(values, {"home": "/h"}) == {
        "a": "/h/x", "b": "${home}/x", "c": "-", "d": "$x {y}",
    }  # fmt: skip
