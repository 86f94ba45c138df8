"""Tables and progress: plain lines into pipes, no wider than the window on a terminal."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from datetime import datetime
from itertools import count
from typing import Any

import pytest

from adon.cli import output, terminal
from adon.cli.options import instant_of, moment_of
from network_provisioner.base.csv_cells import csv_cell
from network_provisioner.base.errors import InputError
from network_provisioner.base.instants import instant, local_time

HEAD = ("name", "size>")
ROWS = [("[bold]short", "1 MB"), ("a name of many words " * 4, "20 MB")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_into_a_pipe_columns_are_as_wide_as_they_need_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    head, first, second = terminal.grid(HEAD, ROWS).splitlines()
    assert head.split() == ["name", "size"] and second.endswith("  20 MB")
    assert len(head) == len(first) == len(second) > 80


def test_on_a_terminal_nothing_is_wider_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.grid(HEAD, ROWS)).splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 40
    assert lines[1:3] == ["[bold]short", "  size 1 MB"]  # a name is no mark-up
    assert " ".join(lines).split().count("words") == 4


def test_times_without_a_zone_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    at = instant("2026-11-21T14:00:00Z", "x")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1")
        time.tzset()
        typed = [read("2026-11-21 15:00", "--at", 0.0) for read in (instant_of, moment_of)]
        shown = local_time(at)
    time.tzset()
    assert typed == [at, at] and shown == "2026-11-21 15:00:00"
    assert instant_of("2026-11-21T14:00Z", "--at", 0.0) == at == instant("2026-11-21T14:00", "x")


def test_a_time_of_day_is_the_next_or_the_last() -> None:
    noon = datetime(2026, 11, 21, 12, 0).timestamp()
    hours = {
        text: [(read(text, "--at", noon) or 0.0) - noon for read in (instant_of, moment_of)]
        for text in ("14:00", "9:30", "12:00")
    }
    assert hours == {"14:00": [7200, -79200], "9:30": [77400, -9000], "12:00": [0, 0]}
    with pytest.raises(InputError, match="'25:00'"):
        instant_of("25:00", "--at", noon)


def test_lines_below_a_table_are_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    reasons = ["t: no path has room for that rate, " * 3]
    args = argparse.Namespace(json=False, csv=False, columns=None)
    for stream, lines in ((Terminal(), 3), (io.StringIO(), 1)):
        monkeypatch.setattr(sys, "stdout", stream)
        parts = output.rendered_pages(
            args, [output.Column("a")], [[{"a": 1}]], below=lambda: reasons
        )
        shown = "\n".join(parts).splitlines()[2:]
        assert len(shown) == lines and (max(map(len, shown)) <= 40) == (lines == 3)


def test_on_a_narrow_terminal_long_texts_are_below_their_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "30")
    rows = [("installed", "180 Mb/s", "-", "mu-s1-s2-tacc"), ("queued", "-", "-", "")]
    text = terminal.grid(("state", "rate>", "job", "path"), rows)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert [line.rstrip() for line in lines] == [
        "state          rate",
        "installed  180 Mb/s",
        "  path mu-s1-s2-tacc",
        "queued            -",
    ]
    monkeypatch.setenv("COLUMNS", "16")
    text = terminal.grid(("state", "name", "changed"), [("running", "montage-m", "9 min 43 s")])
    assert text.splitlines()[-3:] == ["  name montage-m", "    changed", "    9 min 43 s"]


def test_records_are_the_same_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"id": "=a", "totals": {"done": 1}, "ends": ["x", "y"], "at": None, "rate_bps": 2e6}]
    columns = (
        output.Column("id"),
        output.Column("ends.1", "end"),
        output.Column("rate_bps", "rate>"),
        output.Column("totals.done", "done>"),
    )

    def printed(**chosen: Any) -> str:
        given = {"json": False, "csv": False, "columns": None} | chosen
        assert output.print_records(Namespace(**given), columns, records) == 0
        return capsys.readouterr().out.rstrip("\n")

    assert printed() == "id  end    rate  done\n=a  y    2 Mb/s     1"
    assert printed(csv=True) == "id,ends.1,rate_bps,totals.done\n'=a,y,2000000.0,1"
    assert json.loads(printed(json=True)) == records
    picked = ["totals.done", "at", "ends"]
    assert printed(columns=picked) == "done  at  ends\n   1  -   x, y"
    assert printed(csv=True, columns=picked) == 'totals.done,at,ends\n1,,"[""x"", ""y""]"'
    assert json.loads(printed(json=True, columns=picked)) == [
        {"totals.done": 1, "at": None, "ends": ["x", "y"]}
    ]
    with pytest.raises(InputError, match=r"found 'totals', expected some of id, .*, totals.done, "):
        printed(columns=["totals"])


def test_on_a_terminal_there_is_a_bar() -> None:
    stream = Terminal()
    with output.progress(4, "cases", stream) as done:
        done(1)
        done(4)
    text = stream.getvalue()
    assert "4/4" in text and "cases" in text and "\n" in text


def test_elsewhere_about_ten_lines_are_written() -> None:
    stream, clock = io.StringIO(), map(float, count())
    with output.progress(200, "cases", stream, clock.__next__) as done:
        for number in range(1, 201):
            done(number)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("20 of 200 cases, about ")
    assert lines[-1].startswith("200 of 200 cases, ")


def test_nothing_to_do_is_no_trouble() -> None:
    stream = io.StringIO()
    with output.progress(0, "cases", stream):
        pass
    assert stream.getvalue() == ""


def test_more_than_a_terminal_has_lines_for_goes_to_the_pager(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("LINES", "4")
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    terminal.print_paged(["1\n2", "3"])
    assert screen.getvalue() == "1\n2\n3\n"
    terminal.print_paged(["1\n2", "3", "4"])
    assert capfd.readouterr().out == "paged:1\npaged:2\npaged:3\npaged:4\n"
    monkeypatch.setenv("PAGER", "true")  # ended by its reader before all is shown
    terminal.print_paged("text" * 1000 for _ in range(1000))
    for nothing in ("", "less 'x"):
        monkeypatch.setenv("PAGER", nothing)
        terminal.print_paged(["1", "2", "3", "4"])
    assert screen.getvalue().endswith("3\n1\n2\n3\n4\n1\n2\n3\n4\n")


def test_a_pager_of_few_letters_gets_the_others_escaped() -> None:
    """As standard output does: see main()."""
    code = "from adon.cli.terminal import _page; _page(['cat'], ['\\u0393'])"
    locale = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | locale, capture_output=True, check=False
    )
    assert (done.stdout, done.stderr) == (b"\\u0393\n", b"")


def test_only_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, coloured in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stdout", stream)
        assert ("\x1b[31m" in terminal.grid(("state",), [("failed",)])) is coloured


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"), (0.053, "53 ms"), (0.9994, "999 ms"), (0.9996, "1 s"), (119.96, "120 s"),
        (148, "2 min 28 s"), (599.7, "10 min"), (6720, "112 min"), (7320, "2 h 2 min"),
    ],
)  # fmt: skip
def test_durations_have_three_figures_at_most(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@x",
        "\t=1",
        "\r=1",
        "\n=1",
        " =1",
        "\uff1d1",
        "\uff0b1",
        "\uff0d1",
        "\uff20x",
    ],
)
def test_no_cell_is_a_formula(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1, -1.5, None, "a=b", "w:job-1", "", "a; b"])
def test_what_is_none_stays(value: object) -> None:
    assert csv_cell(value) == value
