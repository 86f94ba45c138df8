"""What an ended transfer teaches: Γ_a between two sites and over one path, and what disks take.

Transfers of different sizes tell the terms of T = set-up + files · start + bytes / rate (thesis,
T_n) apart. A transfer of 600 kB that takes 4 s over a path of 200 Mb/s has shaken hands for 4 s.
Taken for a rate it would make the path 1.2 Mb/s slow. A plane through many transfers separates
them, and one with the least sum of deviations (not of their squares) is not led astray by a few
slow ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monitors.archive.outbox import Outbox
from monitors.base.estimates import WINDOW, weighted, weighted_median, weights
from monitors.base.measurement import SMALL_BYTES, Measurement, claimed_by
from network_provisioner.base.model import LIVE, SHARES, Transit, TransitState
from network_provisioner.base.units import BITS_PER_BYTE, goodput
from network_provisioner.topology.graph import way_of

# What went without a path stands beside the layers of those that had one. Most of it is small, and
# over before TCP has found out what the path carries: 20 round trips of 50 ms are enough.
BEST_EFFORT = "best_effort"
STEADY_S = 1.0

# As in path selection: less than this part of its path's rate shows that the path is slow, unless
# shaking hands explains it. For each file, GridFTP takes 0.7 to 3.8 s over 50 to 106 ms.
_POOR = 0.5
_HANDSHAKE_S = 4.0

# No clock that times transfers resolves less; a zero here means that nobody timed it.
_SHORTEST_S = 1e-6

_LEAST = 2  # transfers that a line is drawn through
_APART = 2.0  # the largest is so many times the smallest at least
_LEAST_PART = 1e-3  # of its time a transfer spends on its bytes, whatever the line says
_TURNS, _NEAR = 30, 1e-4
_BETTER = 0.9  # so much less of deviation is worth another term
Floats = npt.NDArray[np.float64]


def transfer_facts(transit: Transit) -> list[Measurement]:
    """Measurements of a transit that is over; none where nothing was moved, nobody timed it, or
    what was reported cannot be.

    ``throughput`` of ``src>dst`` and, where it was given one path, ``path_throughput`` of
    ``src>dst/WAY`` (what the path leads through, as in ``s1-s2``), in bits per second of what the
    user got (goodput), unless small files made it slow; without a path, of
    ``src>dst/best_effort`` where it lasted long enough to say more than how TCP starts. A transfer
    under 64 kB yields ``transfer_latency`` of ``src>dst`` in seconds instead: taken for throughput
    it would make a fast path look slow.
    """
    if transit.state in LIVE or transit.state is TransitState.QUEUED:
        return []
    if transit.usage.bytes <= 0 or transit.usage.seconds < _SHORTEST_S or transit.usage.doubt:
        return []
    subject = f"{transit.request.src}>{transit.request.dst}"
    if transit.usage.bytes < SMALL_BYTES:
        return [_fact(transit, "transfer_latency", subject, transit.usage.seconds, "s")]
    rate_bps = goodput(transit.usage.bytes, transit.usage.seconds)
    facts = [_fact(transit, "throughput", subject, rate_bps, "bit/s")]
    if transit.grant.path:
        path = f"{subject}/{way_of(transit.grant.path)}"
        # Of several, nobody knows how much went over which.
        if not transit.grant.parts and not _slow_by_handshakes(transit, rate_bps):
            facts.append(_fact(transit, "path_throughput", path, rate_bps, "bit/s"))
    elif (
        transit.usage.seconds >= STEADY_S
        and SHARES not in transit.reason
        and not transit.grant.installed_at
    ):  # one that was installed went a part of its way on a path
        path = f"{subject}/{BEST_EFFORT}"
        facts.append(_fact(transit, "path_throughput", path, rate_bps, "bit/s"))
    return facts


def _slow_by_handshakes(transit: Transit, rate_bps: float) -> bool:
    usage, poor_bps = transit.usage, _POOR * transit.grant.granted_bps
    moving_s = usage.seconds - _HANDSHAKE_S * max(1, usage.files)
    return rate_bps < poor_bps and (moving_s <= 0 or goodput(usage.bytes, moving_s) >= poor_bps)


def disk_facts(transit: Transit) -> list[Measurement]:
    """``disk_rate`` of :func:`disk_subject`, in bits per second that its switches carried, where
    the disk of one of its sites was found to be the limit: of the site, and of its application
    there. It was measured, not claimed."""
    knee = transit.io.knee if transit.io else None
    if knee is None:
        return []
    details = {name: getattr(knee, name) for name in ("low_bps", "high_bps", "cause", "io_wait")}
    return [
        Measurement(
            id=f"disk_rate:{kind}:{transit.id}",
            metric="disk_rate",
            subject=disk_subject(knee.site, knee.way, application),
            value=knee.bps,
            unit="bit/s",
            at=knee.at,
            source="broker",
            workflow=transit.request.workflow,
            details=details
            | {"application": transit.request.application, "job": transit.request.job},
        )
        for kind, application in (("application", transit.request.application), ("site", ""))
        if application or kind == "site"
    ]


def disk_subject(site: str, way: str, application: str = "") -> str:
    """``SITE/read`` or ``SITE/write``, of all applications or one: ``SITE/write/montage``."""
    return f"{site}/{way}/{application}" if application else f"{site}/{way}"


def _fact(transit: Transit, metric: str, subject: str, value: float, unit: str) -> Measurement:
    return Measurement(
        id=f"{metric}:transit:{transit.id}",
        metric=metric,
        subject=subject,
        value=value,
        unit=unit,
        at=transit.grant.released_at or transit.grant.installed_at + transit.usage.seconds,
        source="transfer" if transit.usage.vouched else claimed_by(transit.request.user),
        workflow=transit.request.workflow,
        details={
            "job": transit.request.job,
            "bytes": transit.usage.bytes,
            "seconds": transit.usage.seconds,
            "granted_bps": transit.grant.granted_bps,
            "streams": 0 if transit.relayed else transit.usage.streams,  # of relays, not its own
            "buffer_bytes": transit.usage.buffer_bytes,
            "files": transit.usage.files,
            "path": list(transit.grant.path),
            "state": str(transit.state),
        },
    )


class Recorder:
    """Records ended transits in the archive, each once however often it is told of it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def record(self, transit: Transit) -> int:
        """How many measurements of the transit were new."""
        return self._outbox.record_many([*transfer_facts(transit), *disk_facts(transit)])


@dataclass(frozen=True, slots=True)
class TransferSample:
    """One transfer between two sites: how much in how long, in how many files."""

    n_bytes: float
    seconds: float
    files: float = 1.0


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """``setup_s`` of each transfer with its first file, ``start_s`` of each further file, and the
    ``rate_bps`` at which bytes then move; ``spread`` of what transfers took about this, relative to
    what it says."""

    setup_s: float
    start_s: float
    rate_bps: float
    spread: float


def transfer_times(newest_first: Sequence[TransferSample]) -> TransferTimes | None:
    """The line through transfers, the newest of which weigh most. None where they are too few or
    too much alike to tell set-up from rate."""
    moved = newest_first[:WINDOW]
    sizes = [transfer.n_bytes for transfer in moved]
    if len(moved) < _LEAST or min(sizes) <= 0 or max(sizes) < _APART * min(sizes):
        return None
    shares = weights(0, len(moved))
    setup_s, start_s, per_byte = _plane(moved, shares)
    off = [
        transfer.seconds / (setup_s + start_s * (transfer.files - 1) + per_byte * transfer.n_bytes)
        for transfer in moved
    ]
    return TransferTimes(setup_s, start_s, BITS_PER_BYTE / per_byte, weighted(off, shares)[1])


def _plane(moved: Sequence[TransferSample], shares: Sequence[float]) -> tuple[float, float, float]:
    """Seconds of each transfer, of each further file and of each byte, none below zero; of files
    only where that explains more."""
    table = np.array([[1.0, transfer.files - 1, transfer.n_bytes] for transfer in moved])
    seconds, weight = np.array([transfer.seconds for transfer in moved]), np.array(shares)
    scale = np.where(table.max(axis=0) > 0, table.max(axis=0), 1.0)
    table /= scale
    best, least = None, math.inf
    for columns in ([0, 2], [0, 1, 2], [1, 2]):
        coefficients = _least_deviations(table[:, columns], seconds, weight)
        off = float(weight @ np.abs(seconds - table[:, columns] @ coefficients))
        if coefficients.min() >= 0 and coefficients[-1] > 0 and off < _BETTER * least:
            best, least = dict(zip(columns, coefficients / scale[columns], strict=True)), off
    # Where larger ones took no longer, all that is known is that bytes hardly count.
    quickest = weighted_median([transfer.seconds / transfer.n_bytes for transfer in moved], shares)
    per_byte = max(_LEAST_PART * quickest, 0.0 if best is None else float(best[2]))
    if best is None:
        rest = [transfer.seconds - per_byte * transfer.n_bytes for transfer in moved]
        return max(0.0, weighted_median(rest, shares)), 0.0, per_byte
    return float(best.get(0, 0.0)), float(best.get(1, 0.0)), per_byte


def _least_deviations(table: Floats, seconds: Floats, weight: Floats) -> Floats:
    """By least squares in turns, each weighing what is far off the less."""
    coefficients: Floats = np.zeros(table.shape[1])
    each = weight
    for _ in range(_TURNS):
        root = np.sqrt(each)
        coefficients = np.asarray(
            np.linalg.lstsq(table * root[:, None], seconds * root, rcond=None)[0]
        )
        off = np.abs(seconds - table @ coefficients)
        each = weight / np.maximum(off, _NEAR * float(np.median(seconds)))
    return coefficients
