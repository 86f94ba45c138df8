"""Progress: a bar where somebody looks, a line now and then where nobody does."""

from __future__ import annotations

import io
from itertools import count

from adon.cli.output import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_bar() -> None:
    stream = Terminal()
    with progress(4, "cases", stream) as done:
        done(1)
        done(4)
    text = stream.getvalue()
    assert "4/4" in text and "cases" in text and "\n" in text


def test_elsewhere_about_ten_lines_are_written() -> None:
    stream, clock = io.StringIO(), map(float, count())
    with progress(200, "cases", stream, clock.__next__) as done:
        for number in range(1, 201):
            done(number)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("20 of 200 cases, about ")
    assert lines[-1].startswith("200 of 200 cases, ")


def test_nothing_to_do_is_no_trouble() -> None:
    stream = io.StringIO()
    with progress(0, "cases", stream):
        pass
    assert stream.getvalue() == ""
