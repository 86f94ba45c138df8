"""Progress: a bar where somebody looks, a line now and then where nobody does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count

from adon.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def seconds() -> Iterator[float]:
    return (float(n) for n in count())


def test_on_a_terminal_a_bar_is_drawn_again_and_again_on_one_line() -> None:
    stream, clock = Terminal(), seconds()
    with Progress(4, "cases", stream, clock.__next__) as progress:
        progress(1)
        progress(4)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    drawn = text.strip().split("\r")
    assert drawn[0].startswith("[..............................] 0 of 4 cases")
    assert drawn[-1].startswith("[##############################] 4 of 4 cases")
    assert "left" in drawn[-2]


def test_a_bar_is_not_drawn_more_often_than_anybody_can_see() -> None:
    stream = Terminal()
    with Progress(1000, "cases", stream, lambda: 0.0) as progress:
        for done in range(1, 1000):
            progress(done)
    assert stream.getvalue().count("\r") == 1


def test_elsewhere_about_ten_lines_are_written() -> None:
    stream, clock = io.StringIO(), seconds()
    with Progress(200, "cases", stream, clock.__next__) as progress:
        for done in range(1, 201):
            progress(done)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("20 of 200 cases, about ")
    assert lines[-1].startswith("200 of 200 cases, ")


def test_an_end_in_the_middle_ends_the_line() -> None:
    stream = Terminal()
    try:
        with Progress(5, "cases", stream) as progress:
            progress(1)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert stream.getvalue().endswith("\n")


def test_nothing_to_do_is_no_trouble() -> None:
    stream = io.StringIO()
    with Progress(0, "cases", stream):
        pass
    assert stream.getvalue() == ""
