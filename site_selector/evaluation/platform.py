"""Made-up platforms: sites with their workers, speeds and queues, and a link between every two.

Drawn from wide ranges, every factor as likely: what a slow campus cluster behind an old link and a
large machine on a research backbone have between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

SITES = (2, 8)
LINK_BPS = (10e6, 100e9)
WORKERS = (2, 64)
SPEED = (0.25, 4.0)
SHORT_QUEUE_S = (0.0, 10.0)
LONG_QUEUE_S = (10.0, 1800.0)
_LONG_QUEUES = 0.5  # share of sites that have one
_STORE_APART = 0.25  # share of platforms whose data store runs no jobs


@dataclass(frozen=True, slots=True)
class Platform:
    """Sites, and the place that has the inputs and wants the results.

    ``speed`` divides the run time on the traced machine. ``link_bps[a][b]`` is the link from place
    a to b, the same both ways, 0 to itself. Places are the sites and, where the store is not one
    of them, the store behind them.
    """

    sites: tuple[str, ...]
    workers: tuple[int, ...]
    speed: tuple[float, ...]
    queue_s: tuple[float, ...]
    link_bps: tuple[tuple[float, ...], ...]
    store: int

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the sites, then of the store where it runs no jobs."""
        return self.sites if self.store < len(self.sites) else (*self.sites, "store")


def draw_platform(seed: int, number: int) -> Platform:
    """The platform with that number of those that a seed stands for."""
    rng = Random(f"platform {seed} {number}")
    n = rng.randint(*SITES)
    apart = rng.random() < _STORE_APART
    store = n if apart else rng.randrange(n)
    places = n + apart
    links = [[0.0] * places for _ in range(places)]
    for a in range(places):
        for b in range(a):
            links[a][b] = links[b][a] = spread(rng, *LINK_BPS)
    return Platform(
        tuple(f"site{i}" for i in range(n)),
        tuple(round(spread(rng, *WORKERS)) for _ in range(n)),
        tuple(spread(rng, *SPEED) for _ in range(n)),
        tuple(_queue(rng) for _ in range(n)),
        tuple(tuple(row) for row in links),
        store,
    )


def spread(rng: Random, low: float, high: float) -> float:
    """Between the two, every factor as likely."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _queue(rng: Random) -> float:
    if rng.random() < _LONG_QUEUES:
        return spread(rng, *LONG_QUEUE_S)
    return rng.uniform(*SHORT_QUEUE_S)
