"""Where more bandwidth stops to help: the knee of goodput over provisioned bandwidth. Pure.

Transfers end on disks, so goodput g(b) grows with the provisioned bandwidth b up to what the disks
take and hardly beyond (Montage paper, section 3.1). The knee is the least b beyond which the
marginal gain dg/db stays under a threshold, or where processes wait for disks more than 90 % of
the time although more bandwidth was given. Every curve is taken for one of

    g = e · (b^-p + D^-p)^(-1/p) ÷ (1 + s · max(0, b/K - 1))

D is what the disks take at most, K the knee, p how sharp the corner is, s how much goodput falls
beyond (seeks), e the share of the bandwidth that arrives at most (headers, losses). Each of many
such curves is weighted by how well it explains what periods showed (Student's t with three degrees
of freedom, for bursts), and the next period is provisioned where the outcome is expected to tell
most about the knee.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from network_provisioner.base.model import IoRecord
from network_provisioner.base.units import format_rate

SHARPNESS = [*(2 ** (place / 4) for place in range(20)), 38.0, 76.0, 500.0]
FALLS = [0.0, *(0.1 * 2 ** (place / 2) for place in range(8))]
"""Of corners as sharp as FALLING at least. Every other one is tried at first."""
FALLING = 8.0
SHARES = [1.0, 0.985, 0.97, 0.955, 0.94]
"""Of the provisioned bandwidth, what arrives at most: headers, losses."""
HARD, PLAIN = 5.0, 10.0  # times as common as others: hard corners; all arrives and nothing falls
MANY = 60  # so many shapes are enough
NOISES = 0.005, 0.015, 0.045  # spreads of a period's goodput (logarithm)
PLACES = 0.6, 0.74, 0.86, 0.93, 1.0, 1.1, 1.3, 1.8, 4.0
"""Of the knee: where the next period may be."""
STEP = 0.08  # between the knees that are tried at first (logarithms)
FINE = 40  # knees that are tried between those that explain what was seen
BEYOND = 2.0  # knees are tried up to so many times the most bandwidth
UNTRUE = 0.03  # of the way beyond the knee (logarithms), how far goodput may be off the curve there
SHARP = 12.0  # so far from a corner (times its sharpness) nothing is left of it
LIKELY = 0.003  # of the best one's weight: a curve with less does not matter
WAITED = 0.01  # of their weight keep knees beyond where one of two periods waited for disks
QUANTILES = 0.025, 0.45, 0.975  # the knee is rather taken for too low: beyond is for others
PROBES = 10  # after so many the knee is taken for what it seems
LEARNT = 20  # until so many it is known better with each, where it is not well enough
CLOSE = 1.05  # within this factor the knee is known well enough
HEADROOM = 1.02  # what is provisioned when it is known
WAITING = 0.9  # share of a period waited for disks, above which they are saturated
FILLED = 0.95  # of what is provisioned: the network is what limits, whoever waits for disks
IMPOSSIBLE = 2.0  # times what is provisioned
PAUSE = 0.4  # of what was expected: less is a pause between two files
PERSISTS = 4  # so many pauses in a row are none
ODD = 0.08  # of what was expected: so far off twice in a row, something has changed
LOOK_UP = 1.25
LOOKS = 10, 80  # periods from one look up to the next, at first and at most


@dataclass(frozen=True, slots=True)
class Probe:
    """What one period showed: bandwidth and goodput in b/s, and the share of the time, 0 to 1, that
    processes waited for disks; None where nobody reports it."""

    provisioned_bps: float
    goodput_bps: float
    io_wait: float | None = None


@dataclass(frozen=True, slots=True)
class Knee:
    """The knee in b/s, where it is with 95 % confidence, and by what: "marginal gain" or "I/O
    wait"."""

    bps: float
    low_bps: float
    high_bps: float
    cause: str


class _Shape(NamedTuple):
    """How sharp a corner is, how much goodput falls beyond, which share of the bandwidth arrives,
    and knee ÷ limit as a logarithm."""

    sharpness: float
    fall: float
    share: float
    corner: float

    @property
    def weight(self) -> float:
        """How common it is."""
        hard = self.sharpness == SHARPNESS[-1]
        return (HARD if hard else 1.0) * (1.0 if self.fall or self.share < 1 else PLAIN)


@dataclass(slots=True)
class _Curve:
    """One that goodput may follow, and its weight for each of NOISES. Knee and rates are
    logarithms."""

    knee: float
    shape: _Shape
    weights: list[float]

    def goodput(self, rate: float) -> float:
        """With so much bandwidth."""
        sharpness, fall, share, corner = self.shape
        far = rate - self.knee + corner
        rounded = sharpness * abs(far)
        return (
            math.log(share)
            + (rate if far < 0 else rate - far)
            - (math.log1p(math.exp(-rounded)) / sharpness if rounded < SHARP else 0.0)
            - (math.log1p(fall * math.expm1(rate - self.knee)) if rate > self.knee else 0.0)
        )


class _Fit:
    """How well curves explain what was seen; ``grain`` is the distance of their knees."""

    def __init__(self, low: float, high: float, grain: float, shapes: Iterable[_Shape]) -> None:
        self._variances = [noise**2 + grain**2 / 12 for noise in NOISES]
        self.curves = [
            _Curve(low + place * grain, shape, [shape.weight] * len(NOISES))
            for shape in shapes
            for place in range(math.ceil((high - low) / grain) + 1)
        ]

    def weigh(self, rate: float, goodput: float, saturated: float) -> None:
        """By one period; knees beyond what saturates disks are not likely. All logarithms."""
        for curve in self.curves:
            away = (goodput - curve.goodput(rate)) ** 2
            untrue = (UNTRUE * max(0.0, rate - curve.knee)) ** 2
            kept = WAITED if curve.knee > saturated else 1.0
            for place, variance in enumerate(self._variances):
                spread = variance + untrue
                curve.weights[place] *= kept / (math.sqrt(spread) * (1 + away / (3 * spread)) ** 2)

    def likely(self) -> list[tuple[_Curve, float]]:
        """The curves that matter by their knees, with their weights."""
        weighed = [(curve, sum(curve.weights)) for curve in self.curves]
        least = LIKELY * max(weight for _, weight in weighed)
        return sorted((each for each in weighed if each[1] > least), key=lambda each: each[0].knee)


class KneeFinder:
    """Finds the knee between two bandwidths in b/s, one period after the other, and follows it.

    ``gain`` is the marginal gain, in b/s of goodput for each more of bandwidth, that is too little.
    """

    def __init__(self, least_bps: float, most_bps: float, gain: float = 0.1) -> None:
        self._least, self._most = least_bps, most_bps
        self._shapes = [
            _Shape(sharpness, fall, share, _corner(sharpness, gain / share))
            for sharpness in SHARPNESS
            for fall in FALLS
            for share in SHARES
            if not fall or (sharpness >= FALLING and share == 1)
        ]
        self._restart([])

    @property
    def next_bps(self) -> float:
        """What to provision in the next period."""
        return self._next

    @property
    def knee(self) -> Knee | None:
        """The knee; None while unknown, and where more bandwidth always helped."""
        return self._knee

    @property
    def sure(self) -> bool:
        """Whether the knee, or that there is none, is known well enough to stop probing for it."""
        return self._sure

    def add(self, probe: Probe) -> None:
        """Takes in what a period showed; values that cannot be are ignored."""
        bps, goodput, wait = probe.provisioned_bps, probe.goodput_bps, probe.io_wait
        if not (0 < bps < math.inf and 0 <= goodput <= IMPOSSIBLE * bps):
            return
        saturated = wait is not None and WAITING < wait <= 1 and goodput < FILLED * bps
        if goodput < self._least / 100 and not saturated:
            return  # nothing was moving
        probe = Probe(bps, max(goodput, self._least / 100), 1.0 if saturated else None)
        expected = math.exp(self._best.goodput(math.log(bps))) if self._probes else 0.0
        if goodput < PAUSE * expected and not saturated:
            self._pauses.append(probe)
            if len(self._pauses) == PERSISTS:
                self._restart(self._pauses)
            return
        self._pauses.clear()
        if self._sure:
            self._follow(probe, expected)
        else:
            self._learn(probe)

    def _restart(self, probes: list[Probe]) -> None:
        """Forgets all but these."""
        first = [
            shape for shape in self._shapes
            if shape.sharpness in SHARPNESS[::2]
            and shape.fall in FALLS[::2]
            and shape.share in SHARES[::2]
        ]  # fmt: skip
        self._coarse = _Fit(math.log(self._least), math.log(self._most * BEYOND), STEP, first)
        self._probes: list[Probe] = []
        self._knee: Knee | None = None
        self._sure = False
        self._cause = "marginal gain"
        self._next = self._most
        self._every, self._since = LOOKS[0], 0
        self._odd: list[Probe] = []
        self._pauses: list[Probe] = []
        for probe in probes:
            self._learn(probe)

    def _learn(self, probe: Probe) -> None:
        """Weighs the curves by one more period."""
        self._probes.append(probe)
        self._weigh(self._coarse, len(self._probes) - 1)
        near = [curve for curve, _ in self._coarse.likely()]
        low, high = near[0].knee - STEP, near[-1].knee + STEP
        fine = _Fit(low, high, (high - low) / FINE, self._between({curve.shape for curve in near}))
        for place in range(len(self._probes)):
            self._weigh(fine, place)
        self._conclude(fine.likely())

    def _between(self, shapes: Collection[_Shape]) -> Collection[_Shape]:
        """Those and the ones between them, where these are not many."""
        sharp = [shape.sharpness for shape in shapes]
        falls = [shape.fall for shape in shapes]
        shares = [shape.share for shape in shapes]
        between = [
            shape
            for shape in self._shapes
            if min(sharp) / 1.3 < shape.sharpness < max(sharp) * 1.3
            and min(falls) / 1.5 <= shape.fall <= max(falls) * 1.5
            and min(shares) <= shape.share <= max(shares)
        ]
        return between if len(between) <= MANY else shapes

    def _weigh(self, fit: _Fit, place: int) -> None:
        """Weighs curves by one of the periods."""
        probe, saturated = self._probes[place], math.inf
        waited = [each.provisioned_bps for each in self._probes[: place + 1] if each.io_wait]
        if probe.io_wait and len(waited) > 1:
            self._cause = "I/O wait"
            saturated = math.log(min(waited))
        rate = math.log(probe.provisioned_bps)
        fit.weigh(rate, math.log(probe.goodput_bps), saturated)

    def _conclude(self, likely: Sequence[tuple[_Curve, float]]) -> None:
        """From curves by their knees, and their weights."""
        self._best = max(likely, key=lambda each: each[1])[0]
        shares = list(accumulate(weight for _, weight in likely))
        low, middle, high = (
            likely[bisect_left(shares, share * shares[-1])][0].knee for share in QUANTILES
        )
        top = math.log(self._most)
        spent = len(self._probes) >= PROBES
        self._vague = high - low > 2 * math.log(CLOSE)
        if middle >= top:
            self._knee = None
            self._sure = spent or low >= top - math.log(CLOSE)
        else:
            bps, least, most = (
                min(max(math.exp(log), self._least), self._most) for log in (middle, low, high)
            )
            self._knee = Knee(bps, least, most, self._cause)
            self._sure = spent or not self._vague
        self._next = self._settled if self._sure else self._telling(likely, middle)

    @property
    def _settled(self) -> float:
        return min(self._most, self._knee.bps * HEADROOM) if self._knee else self._most

    def _telling(self, likely: Sequence[tuple[_Curve, float]], middle: float) -> float:
        """The bandwidth at which goodput is expected to tell most about the knee."""
        noise = NOISES[max(range(len(NOISES)), key=self._best.weights.__getitem__)]

        def unknown(rate: float) -> float:
            """The variance of the knee that is left when goodput is known as well as it can be."""
            far = UNTRUE * max(0.0, rate - middle)
            width = 2 * math.hypot(noise, far)
            alike: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
            for curve, weight in likely:
                sums = alike[round(curve.goodput(rate) / width)]
                away = curve.knee - middle
                sums[0] += weight
                sums[1] += weight * away
                sums[2] += weight * away * away
            return sum(squares - knees * knees / all_ for all_, knees, squares in alike.values())

        lowest, highest = math.log(self._least), math.log(self._most)
        places = {min(max(middle + math.log(place), lowest), highest) for place in PLACES}
        return math.exp(min(places, key=unknown))

    def _follow(self, probe: Probe, expected: float) -> None:
        """Looks whether what is known still holds, and whether there is more now and then."""
        if abs(probe.goodput_bps / expected - 1) > ODD:
            self._odd.append(probe)
            if len(self._odd) == 2:
                self._restart(self._odd)
            return
        self._odd.clear()
        if probe.provisioned_bps > self._settled * 1.05:  # it was a look up
            self._every = min(2 * self._every, LOOKS[1])
            self._since = 0
        self._since += 1
        if self._knee and self._vague and len(self._probes) < LEARNT:
            self._learn(probe)
        look = self._since >= self._every
        self._next = min(self._most, self._settled * (LOOK_UP if look else 1))


def _corner(sharpness: float, gain: float) -> float:
    """The logarithm of knee ÷ limit: where (1 + x^p)^(-1/p - 1) is the gain."""
    return math.log(gain ** (-sharpness / (sharpness + 1)) - 1) / sharpness


def knee_text(io: IoRecord | None) -> str:
    """A knee that was found, or remembered, in words; "" for none."""
    if io is None:
        return ""
    if (knee := io.knee) is not None:
        between = f"{format_rate(knee.low_bps)} to {format_rate(knee.high_bps)}"
        return (
            f"knee at {format_rate(knee.bps)} ({between}): the disk of {knee.site} {knee.way}s no "
            f"more (I/O wait {knee.io_wait:.0%})"
        )
    if io.remembered_bps is not None:
        return f"began at {format_rate(io.remembered_bps)}, which disks were found to take"
    return ""
