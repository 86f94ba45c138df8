"""P13: where more bandwidth stops to help, on curves that are made up.

A probe is a period of 2 s at one provisioned bandwidth: the mean of two seconds' goodput, each with
the noise that is named (standard deviation). Knees are spread evenly (in the logarithm) over the
decade from 50 to 500 Mb/s; from 10 Mb/s to 1 Gb/s can be provisioned.

- corner: g = min(b, K)
- smooth: g = (b^-p + D^-p)^(-1/p), p from 1.5 to 16; the knee is where dg/db is a tenth
- falling: g = min(b, K) / (1 + s·(b/K - 1)) beyond the knee, s from 0.1 to 1
- share: g = e · min(b, K), e from 0.94 to 1: headers and losses
- unknown: g = D·tanh(b/D), g = D·(1 - exp(-b/D)) and g = min(b, K)·(b/K)^-s beyond the knee, none
  of which is of the finder's family

Every way has the same curves and the same luck, and ten probes; what it says then is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from random import Random
from statistics import fmean, median

from tests.bench import Figure, Tell, bench
from tests.bench.knee_peers import (
    GAIN,
    Goodput,
    Way,
    falcon,
    fixed_steps,
    fts,
    ours,
    ternary,
)

OURS = "ADON"
FAMILIES = "corner", "smooth", "falling"
SHARE, UNKNOWN = "share", "unknown"
ALL = *FAMILIES, SHARE, UNKNOWN
NOISES = 0.0, 0.02, 0.05
RUNS = 30
PROBES = 10
CLOSE = 0.05
NEIGHBOURS = 20
COMES, GOES, ENDS = 20, 80, 240
"""Periods in which a neighbour comes and goes, and how many there are."""
TAKEN = 0.4  # of the disk that it takes
FOLLOWED = 0.1  # within so much of the knee is provisioned, three periods in a row


@dataclass(frozen=True, slots=True)
class Curve:
    """Goodput for bandwidth, both in b/s, and its knee in b/s."""

    goodput: Goodput
    knee_bps: float


def curve(family: str, rng: Random) -> Curve:
    """One of a family."""
    knee = 10 ** rng.uniform(math.log10(50e6), math.log10(500e6))
    if family == UNKNOWN:
        return Curve(_unknown(knee, rng), knee)
    if family == SHARE:
        share = rng.uniform(0.94, 1.0)
        return Curve(lambda b: share * min(b, knee), knee)
    if family == "falling":
        slope = 10 ** rng.uniform(-1, 0)
        return Curve(lambda b: min(b, knee) / (1 + slope * max(0.0, b / knee - 1)), knee)
    if family == "smooth":
        p = math.exp(rng.uniform(math.log(1.5), math.log(16)))
        limit = knee / (GAIN ** (-p / (p + 1)) - 1) ** (1 / p)
        return Curve(lambda b: (b**-p + limit**-p) ** (-1 / p), knee)
    return Curve(lambda b: min(b, knee), knee)


def _unknown(knee: float, rng: Random) -> Goodput:
    kind = rng.randrange(3)
    if kind == 0:
        power = 10 ** rng.uniform(-1, 0)
        return lambda b: min(b, knee) * max(1.0, b / knee) ** -power
    if kind == 1:
        limit = knee / math.atanh(math.sqrt(1 - GAIN))
        return lambda b: limit * math.tanh(b / limit)
    limit = knee / -math.log(GAIN)
    return lambda b: limit * (1 - math.exp(-b / limit))


def noisy(exact: Goodput, noise: float, rng: Random) -> Goodput:
    """As a period of two seconds shows it."""
    return lambda b: exact(b) * max(0.0, fmean(rng.gauss(1, noise) for _ in range(2)))


@dataclass(frozen=True, slots=True)
class Row:
    """What the ways took for the knee, as a ratio to it."""

    family: str
    noise: float
    found: Mapping[str, float]
    kept: Mapping[str, float]  # goodput there ÷ at the knee


def run(ways: Mapping[str, Way], work: tuple[str, float, int]) -> Row:
    """One curve."""
    family, noise, seed = work
    goodput_curve = curve(family, Random(f"{family} {seed}"))
    rates = {
        name: way(noisy(goodput_curve.goodput, noise, Random(f"{family} {noise} {seed}")), PROBES)
        for name, way in ways.items()
    }
    at_knee = goodput_curve.goodput(goodput_curve.knee_bps)
    return Row(
        family,
        noise,
        {name: bps / goodput_curve.knee_bps for name, bps in rates.items()},
        {name: goodput_curve.goodput(bps) / at_knee for name, bps in rates.items()},
    )


@bench("P13")
def knee(tell: Tell) -> Iterable[Figure]:
    """How near to the knee, and how far beyond."""
    ways = {
        OURS: ours, "Falcon": falcon(tell), "FTS's rule": fts, "steps of 10 %": fixed_steps,
        "ternary search": ternary,
    }  # fmt: skip
    work = list(product(ALL, NOISES, range(RUNS)))
    rows = [run(ways, each) for each in work]
    for family, noise in product(ALL, NOISES):
        of = [row for row in rows if (row.family, row.noise) == (family, noise)]
        tell(f"{family}, noise {100 * noise:g} %: {_line(of)}")
    for noise in NOISES:
        known = [row for row in rows if row.family in FAMILIES and row.noise == noise]
        yield from figures(known, f"noise {100 * noise:g} %")
        smooth = [row for row in known if row.family == "smooth"]
        yield Figure(
            f"of smooth corners within 5 %, noise {100 * noise:g} %", _within(smooth, OURS), "%",
            "higher", None, {"who knows the family and where to probe": bound(noise)},
        )  # fmt: skip
    for family, words in ((SHARE, "where a share arrives"), (UNKNOWN, "shapes not of its family")):
        yield from figures([row for row in rows if row.family == family], words)


def bound(noise: float) -> float:
    """The share of smooth corners that ten probes can put within 5 %, where the family is known and
    they are at the two best places (Cramér-Rao), in percent."""
    if not noise:
        return 100.0
    sharpness = [1.5 * (16 / 1.5) ** (i / 7) for i in range(8)]
    spreads = [noise / math.sqrt(2) * math.sqrt(_variance(p)) for p in sharpness]
    return fmean(100 * math.erf(math.log1p(CLOSE) / spread / math.sqrt(2)) for spread in spreads)


def _variance(p: float) -> float:
    """Of the knee's logarithm, for probes whose spread is 1."""

    def goodput(x: float, limit: float, p: float) -> float:
        return x - math.log1p(math.exp(p * (x - limit))) / p

    def knee(p: float) -> float:
        return math.log(GAIN ** (-p / (p + 1)) - 1) / p

    def slope(of: Callable[[float], float], at: float) -> float:
        return (of(at * 1.0001 + 1e-4) - of(at * 0.9999 - 1e-4)) / (0.0002 * at + 2e-4)

    there = [i / 20 for i in range(-20, 40)]
    slopes = [
        (slope(lambda limit, x=x: goodput(x, limit, p), 0.0),  # type: ignore[misc]
         slope(lambda q, x=x: goodput(x, 0.0, q), p))  # type: ignore[misc]
        for x in there
    ]  # fmt: skip
    by_p = slope(knee, p)
    best = math.inf
    for (a, b), (c, d) in combinations(slopes, 2):
        for n in range(1, PROBES):
            m = PROBES - n
            first, mixed, second = (
                n * a * a + m * c * c,
                n * a * b + m * c * d,
                n * b * b + m * d * d,
            )
            area = first * second - mixed * mixed
            if area > 1e-12:
                best = min(best, (second - 2 * mixed * by_p + first * by_p * by_p) / area)
    return best


def _line(rows: Sequence[Row]) -> str:
    return (
        f"{_within(rows, OURS):.0f} % within 5 %, median {_median(rows, OURS):.1f} %, worst "
        f"{_worst(rows, OURS):.1f} %, beyond {_beyond(rows, OURS):.1f} %"
    )


def figures(rows: Sequence[Row], words: str) -> Iterable[Figure]:
    """Ours beside the others'."""

    def figure(
        what: str, of: Callable[[Sequence[Row], str], float], goal: float | None = None
    ) -> Figure:
        values = {name: of(rows, name) for name in rows[0].found}
        mine = values.pop(OURS)
        better = "higher" if of in (_within, _kept) else "lower"
        return Figure(f"{what}, {words}", mine, "%", better, goal, values)  # type: ignore[arg-type]

    yield figure("knee within 5 % after 10 probes of 2 s", _within, 100)
    yield figure("knee's error, median", _median, 5)
    yield figure("knee's error, worst", _worst)
    yield figure("beyond the knee, worst", _beyond, 5)
    yield figure("goodput kept, worst", _kept)


def _errors(rows: Sequence[Row], name: str) -> list[float]:
    return [100 * (row.found[name] - 1) for row in rows]


def _within(rows: Sequence[Row], name: str) -> float:
    return fmean(100.0 * (abs(e) <= 100 * CLOSE) for e in _errors(rows, name))


def _median(rows: Sequence[Row], name: str) -> float:
    return median(map(abs, _errors(rows, name)))


def _worst(rows: Sequence[Row], name: str) -> float:
    return max(map(abs, _errors(rows, name)))


def _beyond(rows: Sequence[Row], name: str) -> float:
    return max(0.0, *_errors(rows, name))


def _kept(rows: Sequence[Row], name: str) -> float:
    return min(100 * row.kept[name] for row in rows)


@bench("P13")
def neighbour(tell: Tell) -> Iterable[Figure]:
    """Periods until the knee is followed when somebody else takes part of the disk, and when it is
    given back."""
    ways = {OURS: ours, "Falcon": falcon(tell), "FTS's rule": fts}
    tell(f"{NEIGHBOURS} corners with noise of 2 %, {ENDS} periods each")
    took = {name: [followed(way, seed) for seed in range(NEIGHBOURS)] for name, way in ways.items()}
    for place, words in enumerate(("a neighbour comes", "it goes")):
        for what, of in (("median", median), ("worst", max)):
            values = {name: float(of(row[place] for row in rows)) for name, rows in took.items()}
            mine = values.pop(OURS)
            yield Figure(
                f"periods until followed, {words}, {what}", mine, "periods", "lower", None, values
            )


def followed(way: Way, seed: int) -> tuple[int, int]:
    """Periods after a neighbour comes, and after it goes, until the knee is provisioned; as many as
    there are where it never is."""
    rng = Random(f"neighbour {seed}")
    knee = curve("corner", rng).knee_bps
    provisioned: list[float] = []

    def goodput(bps: float) -> float:
        provisioned.append(bps)
        there = COMES < len(provisioned) <= GOES
        return noisy(lambda b: min(b, knee * (1 - TAKEN * there)), 0.02, rng)(bps)

    way(goodput, ENDS)

    def until(begin: int, end: int, knee_bps: float) -> int:
        near = [abs(bps / knee_bps - 1) <= FOLLOWED for bps in provisioned[begin:end]]
        return next((i for i in range(len(near)) if all(near[i : i + 3])), end - begin)

    return until(COMES, GOES, knee * (1 - TAKEN)), until(GOES, ENDS, knee)
