"""P8: anomalies on synthetic paths, how many are noticed and how many alarms are false.

The paths (:mod:`tests.anomaly_paths`) know no detector. Ours was tuned, and the peers are tuned
here, on the paths of :data:`TRAINING`; the figures are those of :data:`HELD_OUT`, which nobody was
tuned on. What counts, for all alike, is in :mod:`tests.anomaly_scores`.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from monitors.alerts.anomalies.detector import Detector
from monitors.alerts.anomalies.model import Anomaly
from tests.bench import Figure, Tell, bench
from tests.bench.anomaly_paths import Path, path
from tests.bench.anomaly_peers import Alarms, fixed, plateau, zscore
from tests.bench.anomaly_scores import Score, score

TRAINING = range(1000, 1060)
HELD_OUT = range(7000, 7120)

_GOAL_RECALL = 95.0
_GOAL_FALSE = 1.0


def notice(path: Path) -> list[tuple[Anomaly, Anomaly]]:
    """What our detector reports, at first and in the end. Time passes on its own too: an
    outage is noticed while it lasts."""
    detector = Detector(path.metric, "a>b")
    notices: dict[str, tuple[Anomaly, Anomaly]] = {}

    def take(batch: Iterable[Anomaly]) -> None:
        for anomaly in batch:
            notices[anomaly.id] = (notices.get(anomaly.id, (anomaly,))[0], anomaly)

    last = path.at[0]
    for at, value in zip(path.at, path.values, strict=True):
        while at - last > 1.5 * path.period_s:
            last += path.period_s
            take(detector.tick(last))
        take(detector.add(at, value))
        last = at
    return sorted(notices.values(), key=lambda pair: pair[0].noticed)


def tuned(make: Callable[..., Alarms], *settings: Sequence[float], on: Sequence[Path]) -> Alarms:
    """The settings with the most recall at less than one false alarm in a month; where there are
    none, those with the fewest false alarms for each that was right."""
    scores = []
    for chosen in itertools.product(*settings):
        got = score(make(*chosen), on)
        few = got.false_per_month < _GOAL_FALSE
        worth = got.recall if few else -got.false_per_month / max(got.recall, 0.01)
        scores.append(((few, worth), chosen))
    _, best = max(scores)
    return make(*best)


@bench("P8")
def anomalies(tell: Tell) -> Iterable[Figure]:
    """Ours beside fixed thresholds, z-scores and plateau detection as published."""
    training = [path(seed) for seed in TRAINING]
    held_out = [path(seed) for seed in HELD_OUT]
    tell(f"{len(held_out)} paths that nothing was tuned on, {len(training)} to tune the peers on")
    peers = {
        "fixed threshold": tuned(fixed, (0.2, 0.3, 0.4, 0.5, 0.6), (4, 6, 8, 12), on=training),
        "z-score": tuned(zscore, (1.5, 2, 2.5, 3, 4), (3, 4, 6, 8), (1, 7), on=training),
        "plateaus as published": plateau(),
    }
    scores = {name: score(alarms, held_out) for name, alarms in peers.items()}

    ours, kinds, samples = Score(), Counter[bool](), 0
    began = time.process_time()
    for series in held_out:
        notices = notice(series)
        belongs = ours.count(series, [first.noticed for first, _ in notices])
        kinds.update(
            last.kind == event.kind
            for (_, last), event in zip(notices, belongs, strict=True)
            if event is not None
        )
        samples += len(series.at)
    spent_s = time.process_time() - began
    months = ours.months
    yield Figure(
        f"recall of {ours.events} anomalies in {months:.0f} path-months", 100 * ours.recall, "%",
        better="higher", goal=_GOAL_RECALL,
        peers={name: 100 * result.recall for name, result in scores.items()},
    )  # fmt: skip
    yield Figure(
        "false alarms per path-month", ours.false_per_month, "1/month",
        better="lower", goal=_GOAL_FALSE,
        peers={name: result.false_per_month for name, result in scores.items()},
    )  # fmt: skip
    yield Figure(
        "anomalies noticed whose kind is right (level, dip, outage)",
        100 * kinds[True] / max(1, kinds.total()), "%", better="higher",
    )  # fmt: skip
    yield Figure(
        "from the start of an anomaly to the notice, median", _median_h(ours), "h",
        better="lower", peers={name: _median_h(result) for name, result in scores.items()},
    )  # fmt: skip
    yield Figure("detection, measurements a second", samples / spent_s, "1/s", better="higher")


def _median_h(result: Score) -> float:
    return statistics.median(result.delays_s) / 3600 if result.delays_s else float("nan")
