"""How others come to a rate, on the curves of bench P13.

They change how many transfers run at once; here the provisioned bandwidth stands for it, in as many
equal steps as Falcon has transfers by default. Falcon's optimiser is its own code. FTS's rule was
written after its source (``OptimizerConnections.cpp``), with success always and a full queue.
"""

from __future__ import annotations

import importlib
import logging
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from adon.machine.cached import Progress, cache_root, make_once
from network_provisioner.selection.knee import KneeFinder, Probe

LEAST_BPS, MOST_BPS = 10e6, 1e9
GAIN = 0.1
FALCON = "1.0.8"
STEPS = 40  # Falcon's default for the most transfers at once
_SPENT = 10**10  # what Falcon's functions answer when there is nothing left to transfer

Goodput = Callable[[float], float]
"""Of one period with so much bandwidth, both in b/s."""
Way = Callable[[Goodput, int], float]
"""Probes so many periods, and says what it takes for the knee, in b/s."""


def ours(goodput: Goodput, probes: int) -> float:
    """ADON's finder."""
    finder = KneeFinder(LEAST_BPS, MOST_BPS, GAIN)
    for _ in range(probes):
        bps = finder.next_bps
        finder.add(Probe(bps, goodput(bps)))
    return finder.knee.bps if finder.knee else MOST_BPS


def fts(goodput: Goodput, probes: int) -> float:
    """FTS: one step more while the moving average of throughput grows, one less where it has lost
    an order of magnitude; starts halfway."""
    steps, average = STEPS // 2, 0.0
    for _ in range(probes):
        before = average
        now = goodput(steps * MOST_BPS / STEPS)
        average = 0.1 * now + 0.9 * average if average else now
        if average >= before:
            steps += 1
        elif round(math.log10(average)) < round(math.log10(before)):
            steps -= 1
        steps = min(max(steps, 2), STEPS)
    return steps * MOST_BPS / STEPS


def fixed_steps(goodput: Goodput, probes: int) -> float:
    """From the least, a tenth more as long as goodput gains."""
    bps, last = LEAST_BPS, goodput(LEAST_BPS)
    for _ in range(probes - 1):
        now = goodput(bps * 1.1)
        if now - last < GAIN * 0.1 * bps:
            break
        bps, last = bps * 1.1, now
    return bps


def ternary(goodput: Goodput, probes: int) -> float:
    """Ternary search for the bandwidth at which goodput less its price is most."""
    low, high = LEAST_BPS, MOST_BPS
    for _ in range(probes // 2):
        third = (high / low) ** (1 / 3)
        left, right = low * third, high / third
        if goodput(left) - GAIN * left < goodput(right) - GAIN * right:
            low = left
        else:
            high = right
    return (low * high) ** 0.5


def falcon(progress: Progress) -> Way:
    """Falcon's gradient descent.

    :raises MissingError: it cannot be had from PyPI.
    """
    search = _falcon_search(progress)
    settings: dict[str, Any] = {"thread_limit": STEPS}

    def way(goodput: Goodput, probes: int) -> float:
        left = probes

        def score(params: list[int]) -> float:
            nonlocal left
            if not left:
                return _SPENT
            left -= 1
            mbps = goodput(params[0] * MOST_BPS / STEPS) / 1e6
            return round(-mbps / 1.02 ** params[0])  # as its black box has it, without loss

        optimizer = search.Optimizer(settings, score, logging.getLogger("falcon"), verbose=False)
        return float(optimizer.gradient_opt_fast()[0] * MOST_BPS / STEPS)

    return way


def _falcon_search(progress: Progress) -> ModuleType:
    """Its module, without what only its Bayesian way needs."""
    home = cache_root() / f"falcon-{FALCON}"

    def build(work: Path) -> None:
        words = ["-m", "pip", "install", "-q", "--no-deps", "--target", str(work / "tree")]
        subprocess.run([sys.executable, *words, f"falcon-datamover=={FALCON}"], check=True)
        (work / "tree").rename(home)

    make_once(home, "Falcon", 1_000_000, build, progress)
    stubs = {"skopt": mock.MagicMock(), "skopt.space": mock.MagicMock()}
    with (
        mock.patch.dict(sys.modules, stubs),
        mock.patch.object(sys, "path", [str(home), *sys.path]),
    ):
        return importlib.import_module("falcon.search")
