"""Runs that are cut short: what stopped them, and that they can be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.demo_run import DemoRun, Ended, Interrupted, interruptible
from examples.demo.expected_gain import best_effort_only
from examples.demo.gather import ending
from examples.montage.scenario import SCENARIO as MONTAGE
from examples.scenario import Scenario
from examples.soykb.scenario import SCENARIO as SOYKB
from network_provisioner.base.errors import AdonError
from network_provisioner.topology.data import topology_from_dict


@pytest.mark.parametrize(
    ("trouble", "state", "words"),
    [
        (None, "success", ""),
        (AdonError("the broker ended"), "broken off", "the broker ended, while sites were chosen"),
        (
            OSError(28, "No space left on device", "/d/x"),
            "broken off",
            "/d/x: No space left on device, while sites were chosen",
        ),
        (
            Interrupted(signal.SIGTERM),
            "interrupted",
            "interrupted by SIGTERM, while sites were chosen",
        ),
    ],
)
def test_what_stopped_a_run(trouble: AdonError | None, state: str, words: str) -> None:
    run = DemoRun(step="sites were chosen", end=Ended("success", 1.0, 2.0), trouble=trouble)
    assert (ending(run), run.stopped) == (state, words)


Handler = Callable[[signal.Signals], object]


@pytest.fixture
def handled() -> Iterator[Handler]:
    """Has a signal end the process, as it does where nohup or a shell in the background did not
    have it ignored, until the test is over; the function returns its handler."""
    before: dict[signal.Signals, Any] = {}

    def handle(number: signal.Signals) -> object:
        before[number] = signal.signal(number, signal.SIG_DFL)
        return signal.getsignal(number)

    yield handle
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_can_be_told_of(number: signal.Signals, handled: Handler) -> None:
    before = handled(number)
    with pytest.raises(Interrupted, match=number.name) as caught, interruptible():
        os.kill(os.getpid(), number)
        signal.pause()
    assert caught.value.number == number
    assert signal.getsignal(number) == before


STOPPED_TWICE = """
import os, signal
from examples.demo.demo_run import Interrupted, interruptible
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
with interruptible():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except Interrupted:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
"""
IGNORED = """
import os, signal
from examples.demo.demo_run import interruptible
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with interruptible():
    os.kill(os.getpid(), signal.SIGHUP)
    print("goes on")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    words = [sys.executable, "-c", code]
    return subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)


def test_the_second_signal_ends_the_process() -> None:
    assert run(STOPPED_TWICE).returncode == -signal.SIGTERM


def test_a_signal_that_was_ignored_stays_so() -> None:
    done = run(IGNORED)
    assert (done.returncode, done.stdout) == (0, "goes on\n")


@pytest.mark.parametrize("scenario", [SOYKB, MONTAGE], ids=["soykb", "montage"])
def test_the_network_makespan_without_adon_has_the_links_of_best_effort(scenario: Scenario) -> None:
    whole = topology_from_dict(scenario.layout.topology())
    left = best_effort_only(whole)
    assert left.sites == whole.sites
    assert {link.label for link in left.links} <= {link.label for link in whole.links}
    for a in left.sites:
        assert all(left.candidate_paths(a, b) for b in left.sites if b != a)
