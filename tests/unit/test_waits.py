"""How long jobs wait by the hour and by how many ask at once."""

from __future__ import annotations

import math
import random

import pytest

from monitors.archive.archive import Archive
from monitors.archive.knowledge import Knowledge, known_estimates, queue_wait
from monitors.base.estimates import at_this_hour, of_width, width_name
from monitors.base.measurement import Measurement

DAY_S, HOUR_S = 86400.0, 3600.0
NOW = 20_000 * DAY_S + 9 * HOUR_S


def wait(number: int, at: float, seconds: float, width: int = 1) -> Measurement:
    return Measurement(
        f"w{number}", "queue_wait", "mu", seconds, "s", at, "event log", details={"width": width}
    )


def daily(days: int, seed: int = 1) -> list[Measurement]:
    """Of each hour some: a minute at night, twenty by day; newest first."""
    draw = random.Random(seed)
    times = sorted((NOW - draw.random() * days * DAY_S for _ in range(40 * days)), reverse=True)
    return [wait(n, at, busy(at) * draw.expovariate(1.0)) for n, at in enumerate(times)]


def busy(at: float) -> float:
    return 1200.0 if 8 <= at % DAY_S / HOUR_S < 18 else 60.0


def test_the_hour_of_the_day_counts_once_it_is_known() -> None:
    rows = daily(7)
    selection = at_this_hour(rows, NOW + 6 * HOUR_S)
    assert selection and all(abs((row.at - NOW - 6 * HOUR_S + DAY_S / 2) % DAY_S - DAY_S / 2)
                         <= 1.5 * HOUR_S for row in selection)  # fmt: skip
    assert at_this_hour(daily(1), NOW) == [] == at_this_hour(rows[:5], NOW)


def test_waits_of_the_morning_are_not_those_of_the_night() -> None:
    """Against the same without the hour: how far off the estimate is, as a factor."""
    off = {"hour": 0.0, "newest": 0.0}
    with Archive(":memory:") as archive:
        archive.record_many(daily(8))
        for hour in range(24):
            now = NOW + hour * HOUR_S - DAY_S
            plain = archive.estimate("queue_wait", "mu", now)
            known = queue_wait(archive, "mu", now)
            assert plain is not None and known is not None and known.note == "at this hour"
            true_s = busy(now) * math.log(2)
            off["hour"] += abs(math.log(known.value / true_s))
            off["newest"] += abs(math.log(plain.value / true_s))
    assert off["hour"] < 0.75 * off["newest"], off


@pytest.mark.parametrize(
    ("jobs", "name"), [(1, "width:1"), (2, "width:2"), (3, "width:4"), (9, "width:16")]
)
def test_names_of_widths(jobs: int, name: str) -> None:
    assert width_name(jobs) == name
    (alike,) = of_width([wait(1, NOW, 5.0, jobs), wait(2, NOW, 5.0, 64)], name)
    assert alike.id == "w1"


def test_many_at_once_wait_otherwise_than_one() -> None:
    with Archive(":memory:") as archive:
        archive.record_many(
            wait(n, NOW - n, 600.0 if n % 2 else 20.0, 60 if n % 2 else 1) for n in range(40)
        )
        known = known_estimates(archive, ["mu"], ["width:64", "width:1", "width:8"], NOW)
        values = {subject: known["queue_wait", subject].value for _, subject in known}
        assert values["width:64@mu"] == 600.0 and values["width:1@mu"] == 20.0
        assert "width:8@mu" not in values and "mu" in values
        for odd in ("width:@mu", "width:x@mu", "width:99999999999999@mu", "width:8@"):
            assert Knowledge(archive).estimate("queue_wait", odd, NOW) is None
