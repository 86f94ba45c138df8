"""``adon transfer compare``: both kinds of runs, what is said of them, and paths given back."""

from __future__ import annotations

import json
import random
import shlex
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from broker_rig import Rig, fill
from cli_world import adon, refusal

from adon.cli import transfer as transfer_compare
from adon.cli.transfer import WITH, WITHOUT, by_chance, rounds, spread_of
from network_provisioner.base.model import LIVE, Transit, TransitState

NOTHING = shlex.join([sys.executable, "-c", "pass"])
FAILS = shlex.join([sys.executable, "-c", "import sys; sys.exit('no such file')"])


def transits(rig: Rig) -> list[Transit]:
    return rig.broker.list()


def compare(*words: str, times: int = 2) -> Any:
    return adon("transfer", "compare", "mu", "tacc", "--times", str(times), *words)


class TestFigures:
    def test_of_each_two_runs_one_has_a_path(self) -> None:
        kinds = rounds(50)
        assert all({*pair} == {WITH, WITHOUT} for pair in zip(kinds[::2], kinds[1::2], strict=True))
        assert {*kinds[::2]} == {WITH, WITHOUT}
        assert kinds == rounds(50)

    def test_spread(self) -> None:
        spread = spread_of([5.0, 1.0, 2.0, 3.0, 4.0])
        assert (spread.runs, spread.mean, spread.quartiles, spread.iqr) == (
            5,
            3,
            (1, 2, 3, 4, 5),
            2,
        )
        assert spread.sd == pytest.approx(2.5**0.5)
        assert spread_of([7.0]).quartiles == (7, 7, 7, 7, 7)

    def test_what_is_alike_may_be_chance_and_what_is_apart_is_not(self) -> None:
        dice = random.Random(1)
        sample, other = ([dice.gauss(630, 30) for _ in range(30)] for _ in range(2))
        assert by_chance(sample, other) > 0.05
        assert by_chance(sample, [value + 33 for value in sample]) < 0.01
        assert by_chance([1.0], [1.0]) == 1
        # Of the 20 ways to deal out three and three, two are as far apart.
        assert by_chance([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1, abs=0.02)


class TestCompare:
    def test_both_kinds_are_run_and_every_path_is_given_back(self, service: Rig) -> None:
        ran = compare("--command", NOTHING, "--size", "1 GB", "--json", times=3)
        assert (ran.code, ran.err) == (0, "")
        result = json.loads(ran.out)
        assert result["unit"] == "b/s"
        assert [len(result[kind]["values"]) for kind in (WITHOUT, WITH)] == [3, 3]
        assert result["change"] == result[WITH]["mean"] / result[WITHOUT]["mean"] - 1
        assert [(t.state, t.usage.outcome, t.usage.bytes) for t in transits(service)] == [
            (TransitState.RELEASED, "success", 10**9)
        ] * 3

    def test_text_and_plot(self, service: Rig, tmp_path: Path) -> None:
        ran = compare("--command", NOTHING, "--plot", str(tmp_path / "plot.svg"))
        assert ran.code == 0
        head, without, with_path, words = ran.out.splitlines()
        assert "IQR" in head and without.split()[:2] == ["without", "2"]
        assert with_path.split()[:2] == ["with", "2"]
        assert words.startswith("with a path: ") and "(p = " in words
        drawn = ElementTree.parse(tmp_path / "plot.svg").getroot()
        assert len(drawn.findall(".//{*}circle")) == 4

    def test_commands_that_fail_are_counted_and_said(self, service: Rig) -> None:
        ran = compare("--command", FAILS)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.count("a path: exit code 1: no such file\n") == 4
        assert "no transfer without a path succeeded" in ran.err
        assert {t.usage.outcome for t in transits(service)} == {"exit code 1: no such file"}
        assert {t.state for t in transits(service)} == {TransitState.RELEASED}

    def test_so_are_those_without_room(self, service: Rig) -> None:
        fill(service)
        held = {t.id for t in transits(service)}
        ran = compare("--command", NOTHING)
        assert ran.code == 1 and "with a path: best_effort: " in ran.err
        assert {t.id for t in transits(service) if t.state in LIVE} == held

    def test_so_is_one_that_lost_its_path(
        self, service: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run(*_: object) -> float:
            service.let_pass(86_400)
            return 1.0

        monkeypatch.setattr(transfer_compare, "_timed", run)
        ran = compare("--command", NOTHING)
        assert ran.code == 1 and ran.err.count("with a path: expired: ") == 2

    def test_an_interrupt_gives_the_path_back(
        self, service: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run(*_: object, **__: object) -> float:
            if any(t.state is TransitState.INSTALLED for t in transits(service)):
                raise KeyboardInterrupt
            return 1.0

        monkeypatch.setattr(transfer_compare, "_timed", run)
        ran = compare("--command", NOTHING)
        assert (ran.code, ran.err) == (130, "adon: interrupted\n")
        assert [(t.state, t.usage.outcome) for t in transits(service)] == [
            (TransitState.RELEASED, "interrupted")
        ]


@pytest.mark.usefixtures("service")
class TestRefusals:
    def test_a_site_that_is_not_there(self) -> None:
        said = refusal("transfer", "compare", "mu", "nowhere", "--command", NOTHING)
        assert "nowhere" in said

    def test_neither_command_nor_size(self) -> None:
        for words in (("--command", " "), ("--command", NOTHING, "--size", "0 B")):
            assert ", expected more" in refusal("transfer", "compare", "mu", "tacc", *words)

    def test_a_program_that_is_not_there(self) -> None:
        said = refusal("transfer", "compare", "mu", "tacc", "--command", "no-such-program x")
        assert said == "no-such-program: No such file or directory"
