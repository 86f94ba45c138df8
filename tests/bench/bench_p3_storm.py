"""P3, a storm: how much of a scarce link is reserved while 200 clients ask for more than it has.

The peers are the same broker without backfilling, which keeps every link free that one who waits
lacks room on, and first fit, which starts what fits and the large wait. All see the same
clients, in a time that passes as fast as it is reckoned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tests.bench import Figure, Tell, bench, percentile
from tests.storm import MINIMA_BPS, Storm, first_fit, without_backfilling

CLIENTS = 200
WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "ours": nullcontext,
    "no backfilling": without_backfilling,
    "first fit": first_fit,
}


@bench("P3")
def storm(tell: Tell) -> Iterable[Figure]:
    """The part reserved, and how long the largest wait."""
    storms: dict[str, Storm] = {}
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder:
        for name, way in WAYS.items():
            tell(f"{CLIENTS} clients, {name}")
            with way():
                storms[name] = Storm(Path(folder) / f"{name}.sqlite", CLIENTS).run()
    shares = {name: 100 * run.reserved for name, run in storms.items()}
    yield Figure(
        f"scarce link reserved in a storm of {CLIENTS} clients",
        shares.pop("ours"),
        "%",
        better="higher",
        goal=90.0,
        peers=shares,
    )
    large = {
        name: [s for low, s in [*run.waits, *run.unserved] if low == max(MINIMA_BPS)]
        for name, run in storms.items()
    }
    waits = {name: percentile(times, 0.5) for name, times in large.items()}
    yield Figure(
        "wait of the largest requests in it, median, of those that wait still so far",
        waits.pop("ours"),
        "s",
        better="lower",
        peers=waits,
    )
    counts = {name: float(len(run.waits)) for name, run in storms.items()}
    yield Figure(
        "transfers that began in ten minutes of it",
        counts.pop("ours"),
        "",
        better="higher",
        peers=counts,
    )
