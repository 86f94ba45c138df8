"""Tables: plain text into pipes, no wider than the window on a terminal."""

from __future__ import annotations

import io
import re
import sys

import pytest

from adon.cli import output

HEAD = ("name", "size>")
ROWS = [("[bold]short", "1 MB"), ("a name of many words " * 4, "20 MB")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_into_a_pipe_columns_are_as_wide_as_they_need_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    head, first, second = output.table(HEAD, ROWS).splitlines()
    assert head.split() == ["name", "size"] and second.endswith("  20 MB")
    assert len(head) == len(first) == len(second) > 80


def test_on_a_terminal_nothing_is_wider_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", output.table(HEAD, ROWS)).splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 40
    assert lines[1].split() == ["[bold]short", "1", "MB"]  # a name is no mark-up
    assert " ".join(lines).split().count("words") == 4
