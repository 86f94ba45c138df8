"""``adon top`` and ``--watch``: what a screen has, and how it is drawn again."""

from __future__ import annotations

import io
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_rig import application, serving
from broker_rig import Rig
from cli_world import adon, refusal

from adon.cli import live, top
from adon.cli.main import build_parser
from network_provisioner.base.errors import BrokerError, InputError


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig(tmp_path / "state.sqlite")
    with serving(application(rig)) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        monkeypatch.setattr("time.time", rig.clock)
        yield rig


def test_one_screen_has_transfers_and_the_fullest_links_first(rig: Rig) -> None:
    rig.ask("a", "mu", "tacc", user="ada", project="p", job="j1", size_bytes=10**9, max_bps=50e6)
    rig.ask("b", "mu", "tacc", user="bob", max_bps=50e6)
    rig.broker.release("b")
    rig.let_pass(5)
    screen = adon("top", "--once").out
    head, workflows, transfers, links, pool = screen.split("\n\n")
    assert head.endswith("transits: 1 hold bandwidth, 0 wait")
    assert transfers.splitlines()[2].split() == [
        "installed", "mu", "tacc", "1", "GB", "50", "Mb/s", "5", "s", "ada/p", "j1",
    ]  # fmt: skip
    assert len(transfers.splitlines()) == 3
    assert links.splitlines()[2].startswith("s1 > s2")
    # This broker follows no workflows and expands no pool: that is no reason to show nothing.
    assert workflows.startswith("workflows: ") and pool.startswith("pool: ")
    assert "transfers: none" in adon("top", "--once", "--user", "bob").out


def test_what_some_do_not_need_others_have() -> None:
    assert top._rooms([0, 50, 4], 20) == [0, 16, 4]
    assert top._rooms([9, 9, 9], 10) == [3, 3, 4]
    assert top._rooms([9, 9, 9], 2) == [1, 1, 1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "term"), [(io.StringIO, "xterm"), (Terminal, "xterm"), (Terminal, "dumb")]
)
def test_it_is_drawn_until_ctrl_c_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], term: str
) -> None:
    answers = iter(["first", BrokerError("is away"), "third"])
    slept: list[float] = []

    def draw() -> str:
        answer = next(answers)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdout", stream())
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(live, "sleep", sleep)
    assert live.draw_again(draw, "30 s", "--every") == 0
    shown = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert slept == [30.0] * 3
    assert re.findall("first|adon: is away|third", shown) == ["first", "adon: is away", "third"]


def test_sigterm_leaves_the_terminal_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(live, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        live.draw_again(lambda: "first", "30 s", "--every")
    shown = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert ended.value.code == 128 + signal.SIGTERM
    assert "\x1b[?25h" in shown and shown.endswith("\x1b[?1049l")
    assert signal.getsignal(signal.SIGTERM) == before


def test_another_size_is_drawn_at_once() -> None:
    with live._restored():
        signal.raise_signal(signal.SIGWINCH)
        live.sleep(3600.0)


def test_a_narrow_terminal_has_some_of_each(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(9):
        rig.ask(f"n{n}", "mu", "tacc", max_bps=1e6)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert top._run(build_parser().parse_args(["top", "--once"])) == 0
    lines = sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 24 and max(len(re.sub("\x1b\\[[0-9]*m", "", line)) for line in lines) <= 40
    assert any("links" in line for line in lines) and any("pool:" in line for line in lines)


def test_what_fails_at_once_ends_it() -> None:
    def draw() -> str:
        raise BrokerError("is away")

    with pytest.raises(BrokerError):
        live.draw_again(draw, "1 s", "--every")
    with pytest.raises(InputError, match="--every"):
        live.draw_again(draw, "never", "--every")


def test_a_list_is_watched(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def sleep(_: float) -> None:
        rig.ask(f"new-{len(rounds)}", "mu", "tacc", max_bps=1e6)
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setenv("PAGER", "")
    monkeypatch.setattr(live, "sleep", sleep)
    ran = adon("transit", "list", "--watch", "5 s", "--csv", "--columns", "id")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split() == ["id", "id", "new-0", "id", "new-1", "new-0"]
    assert refusal("transit", "list", "--watch", "x").startswith("--watch: found 'x', expected")
