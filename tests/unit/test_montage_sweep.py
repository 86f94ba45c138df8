"""The sweep over provisioned bandwidth: what is run, what is kept, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from adon.machine import box, packages, syscalls
from examples.montage import sweep as swept
from examples.montage.sweep_run import SweepRun
from network_provisioner.base.errors import AdonError, MissingError

RATES = (2e6, 8e6)
WAITS = [0.5, *[0.0] * 8, 0.5]


def a_run(placement: str = "default", rate_bps: float = 2e6, **more: object) -> SweepRun:
    run = SweepRun(placement, rate_bps, 8e6, 1, "success", 100.0, 0.5, WAITS)
    return replace(run, **more)  # type: ignore[arg-type]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SweepRun]:
    """What was run, each in as many seconds as were before it."""
    runs: list[SweepRun] = []

    def make(run: SweepRun, _state: Path, _programs: object, file: Path) -> None:
        runs.append(replace(run, state="success", seconds=float(len(runs)), io_wait=WAITS))
        file.write_text(json.dumps(asdict(runs[-1])))

    monkeypatch.setattr(swept, "make", make)
    monkeypatch.setattr(box, "can_box", lambda: None)
    for call in ("unshare", "mount"):
        monkeypatch.setattr(syscalls, call, lambda *_, **__: None)
    monkeypatch.setattr(packages, "ensure", lambda name, progress: Path(name))
    return runs


def sweep(
    state: Path, runs: int = 1, say: Callable[[str], None] = lambda _: None
) -> list[SweepRun]:
    return swept.sweep(RATES, 8e6, runs, state, say)


def test_each_rate_and_placement_is_run_and_not_again(tmp_path: Path, made: list[SweepRun]) -> None:
    runs = sweep(tmp_path)
    assert {(run.placement, run.rate_bps) for run in runs} == {
        (placement, rate_bps) for placement in ("default", "isolated") for rate_bps in RATES
    }
    assert sweep(tmp_path) == runs and len(made) == 4
    assert [run.number for run in sweep(tmp_path, runs=2)[4:]] == [2] * 4
    assert len(made) == 8


def test_a_run_that_came_to_no_end_is_told(
    tmp_path: Path, made: list[SweepRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swept, "make", lambda *_: None)
    with pytest.raises(AdonError, match=r"^default-2-8-1 did not come to its end"):
        sweep(tmp_path)


def test_without_a_network_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "can_box", lambda: "this is user id 1000")
    with pytest.raises(MissingError, match=r"^sweep: needs a network of its own: this is user"):
        sweep(tmp_path)


def test_what_is_shown() -> None:
    runs = [a_run(), a_run(seconds=120.0), a_run("isolated", 8e6), a_run(state="failed")]
    points = swept.points(runs)
    assert {point: len(of) for point, of in points.items()} == {
        ("default", 2e6): 2, ("isolated", 8e6): 1,
    }  # fmt: skip
    assert swept.text(points).splitlines()[1].split() == [
        "default", "2", "Mb/s", "110.0", "14.1", "50%", "50%", "0%",
    ]  # fmt: skip
    drawn = ElementTree.fromstring(swept.figure(points))
    assert len(drawn.findall(".//{*}circle")) == 2  # a point of each curve
    assert len(drawn.findall(".//{*}rect")) == 1 + 2 * 10
