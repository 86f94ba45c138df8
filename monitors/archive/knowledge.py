"""What is known for a decision, from all that bears on it: Γ_a by path, Γ_c by transformation and
site, T_q by site, each with spread, age and source.

Γ_a is what transfers got, for that is what the next one will get. Where none went lately (a day)
and somebody measured the path since, that counts: probes of agents and a campus's perfSONAR tests
(``tcp_throughput``). They are between hosts, of which a site may have several; the fastest pair of
those measured lately says what the path carries, for a slower one is slow by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from statistics import median
from typing import Protocol

from monitors.archive.transfers import BEST_EFFORT, TransferSample, disk_subject, transfer_times
from monitors.base.estimates import (
    WAITS_READ,
    WIDTH,
    WINDOW,
    Estimate,
    at_this_hour,
    of_width,
    wait_spread,
)
from monitors.base.measurement import Measurement, number_in
from network_provisioner.topology.graph import way_of

FRESH_S = 86400.0
"""How long a measurement is as good as new, in seconds."""

LIVE_S = 900.0
"""How long what was measured of a path says how it is, in seconds: a template's ``max_age``."""

_PROBES, _DISKS = "tcp_throughput", "disk_rate"
_WAIT = "queue_wait"
_SPACE, _LAST_SPACES = "free_space", 3  # of which the least counts
_OF_PATHS = frozenset({"rtt", "loss"})
TRANSFER_RATE, TRANSFER_START, FILE_START = "transfer_rate", "transfer_start", "file_start"
_BYTES, _FILES = "transfer_bytes", "transfer_files"
_TERMS = (TRANSFER_RATE, TRANSFER_START, FILE_START, _BYTES, _FILES)
_OF_NO_PLACE = frozenset({"belief_error"})
_MOST_PAIRS = 1024  # of sites whose terms are kept
_TRANSFERS = ("job_transfer", "throughput")
_MADE_OF = dict.fromkeys(_TERMS, _TRANSFERS)
_OF_A_PATH = {"throughput": _PROBES, "delay": "rtt", "jitter": "jitter", "loss": "loss"}
_FOR_MAPPING = (
    _WAIT, "output_ratio", "compute_rate", "runtime", "throughput", "transfer_setup",
    "dag_overhead", _DISKS, _SPACE, *sorted(_OF_NO_PLACE),
    *_TERMS, *sorted(_OF_PATHS), _PROBES,
)  # fmt: skip


class Source(Protocol):
    """Where estimates come from: the archive."""

    def estimate(
        self, metric: str, subject: str, now: float, max_age_s: float | None = None
    ) -> Estimate | None:
        """As :meth:`monitors.archive.archive.Archive.estimate`."""

    def subjects(self, metric: str) -> Sequence[str]:
        """As :meth:`monitors.archive.archive.Archive.subjects`."""

    def query(
        self, metric: str, subject: str, *, until: float, newest: bool, limit: int
    ) -> Sequence[Measurement]:
        """As :meth:`monitors.archive.archive.Archive.query`."""


def gamma_a(source: Source, src: str, dst: str, now: float) -> Estimate | None:
    """Γ_a: the rate of a transfer between two sites, bit/s; None if it is unknown."""
    moved = source.estimate("throughput", f"{src}>{dst}", now)
    return _or_probed(source, moved, src, dst, now)


def transfer_terms(source: Source, src: str, dst: str, now: float) -> dict[str, Estimate]:
    """``transfer_rate`` (bit/s), ``transfer_start`` (s of each transfer, with its first file) and
    ``file_start`` (s of each further file): what transfers of different sizes tell apart of T_n, by
    the tool and protocol of the newest; none where they do not, or where the newest of them is a
    day old. By followers, who count files, else brokers. Where they were all of about one size,
    ``transfer_bytes`` and ``transfer_files`` say what those had that took so long."""
    subject, alike = f"{src}>{dst}", list[TransferSample]()
    for metric in _TRANSFERS:
        rows = source.query(metric, subject, until=now, newest=True, limit=WINDOW)
        if not rows or rows[0].at < now - FRESH_S:
            continue
        moved = _moved(rows)
        times = transfer_times(moved)
        if times is not None:
            note = "told apart by transfers of different sizes"
            terms = (
                (TRANSFER_RATE, times.rate_bps, "bit/s"),
                (TRANSFER_START, times.setup_s, "s"),
                (FILE_START, times.start_s, "s"),
            )
            return _known_terms(terms, times.spread, moved, rows[0], subject, note)
        if moved and not alike:
            alike, newest = moved, rows[0]
    if not alike:
        return {}
    sizes = (
        (_BYTES, median(transfer.n_bytes for transfer in alike), "byte"),
        (_FILES, median(transfer.files for transfer in alike), "1"),
    )
    return _known_terms(sizes, 0.0, alike, newest, subject, "")


def _known_terms(
    terms: Sequence[tuple[str, float, str]],
    spread: float,
    moved: Sequence[TransferSample],
    newest: Measurement,
    subject: str,
    note: str,
) -> dict[str, Estimate]:
    return {
        metric: Estimate(
            value, spread * value, len(moved), newest.at, newest.source, unit, metric, subject, note
        )
        for metric, value, unit in terms
    }


def _moved(newest_first: Sequence[Measurement]) -> list[TransferSample]:
    """Transfers of the newest one's tool and protocol, without those whose time includes waits."""
    transfers = []
    for row in newest_first:
        known = row.details
        n_bytes, seconds = number_in(known.get("bytes")), number_in(known.get("seconds"))
        if _tool(row) == _tool(newest_first[0]) and n_bytes and seconds:
            files = number_in(known.get("files")) or 1.0
            if known.get("goodput_bps", True) is not None:
                transfers.append(TransferSample(n_bytes, seconds, files))
    return transfers


def _tool(row: Measurement) -> tuple[object, object]:
    return row.details.get("tool"), row.details.get("protocol")


def path_throughput(source: Source, src: str, dst: str, way: str, now: float) -> Estimate | None:
    """The rate of transfers over a path through ``way``, bit/s. Best effort takes the same path as
    probes."""
    moved = source.estimate("path_throughput", f"{src}>{dst}/{way}", now)
    return _or_probed(source, moved, src, dst, now) if way == BEST_EFFORT else moved


def path_subject(nodes: Sequence[str]) -> str:
    """The subject of probes that are held to a path."""
    return f"{nodes[0]}>{nodes[-1]} via {way_of(nodes)}"


def path_metrics(
    source: Source, nodes: Sequence[str], is_default: bool, now: float
) -> dict[str, Estimate]:
    """What was measured of one path lately, as path selection names it: ``throughput`` (bit/s),
    ``delay`` (there and back, s), ``jitter`` (s), ``loss`` (0..1).

    Of transfers that went over it, and of probes that were held to it; where best effort goes this
    way (``is_default``), of all probes between the two sites. The newest counts.
    """
    src, dst = nodes[0], nodes[-1]
    way = way_of(nodes)
    moved = _lately(source, "path_throughput", f"{src}>{dst}/{way}", now)
    metrics = {"throughput": moved or path_throughput(source, src, dst, way, now)}
    for name, metric in _OF_A_PATH.items():
        subjects = [path_subject(nodes)]
        if metric == "rtt":
            subjects.append(path_subject(nodes[::-1]))
        if is_default:
            subjects.append(f"{src}>{dst}")
        known = [_lately(source, metric, subject, now) for subject in subjects]
        if is_default and not any(known):
            best = max if metric == _PROBES else min
            known.append(_of_hosts(source, metric, src, dst, now, best, LIVE_S))
        metrics[name] = _newest([metrics.get(name), *known])
    return {name: known for name, known in metrics.items() if known is not None}


def _newest(candidates: Sequence[Estimate | None]) -> Estimate | None:
    return max(
        (known for known in candidates if known is not None),
        key=lambda known: known.at,
        default=None,
    )


def _lately(source: Source, metric: str, subject: str, now: float) -> Estimate | None:
    """From the last minutes only: older measurements would outvote the present state."""
    return source.estimate(metric, subject, now, LIVE_S)


def path_state(source: Source, metric: str, src: str, dst: str, now: float) -> Estimate | None:
    """``rtt`` (s) or ``loss`` (0..1) between two sites, of their hosts the pair with the least."""
    own = source.estimate(metric, f"{src}>{dst}", now)
    return own or _of_hosts(source, metric, src, dst, now, min)


def gamma_c(source: Source, transformation: str, site: str, now: float) -> Estimate | None:
    """Γ_c: how fast a transformation runs at a site, byte/s; seconds for each of its jobs where
    sizes of inputs were not known (``metric`` is ``runtime`` then). None where it never ran there.
    """
    subject = f"{transformation}@{site}"
    return source.estimate("compute_rate", subject, now) or source.estimate("runtime", subject, now)


def disk_rate(
    estimate: Callable[[str, str, float], Estimate | None],
    site: str,
    way: str,
    application: str,
    now: float,
) -> Estimate | None:
    """What an application gets from the disk of a site, bit/s, as the broker found it; where it
    never was the limit there, what others got. ``way``: ``read`` or ``write``; ``estimate`` is a
    source's."""
    own = estimate(_DISKS, disk_subject(site, way, application), now)
    return own or estimate(_DISKS, disk_subject(site, way), now)


def queue_wait(
    source: Source,
    site: str,
    now: float,
    waits_at: Callable[[str, float], Sequence[Measurement]] | None = None,
) -> Estimate | None:
    """T_q: how long a job waits at a site, s; as jobs waited at this time of the day, where enough
    of them did. ``width:8@mu``: how long one of so many jobs of a workflow does; None where none
    was measured. ``waits_at``: the newest of a site at a Unix second, where somebody has them."""
    width, _, place = site.rpartition("@")
    by_width = width.startswith(WIDTH)
    known = None if by_width else source.estimate(_WAIT, site, now)
    if known is None and not by_width:
        return None
    rows = (waits_at or partial(_waits_at, source))(place, now)
    alike = of_width(rows, width) if by_width else at_this_hour(rows, now)
    if not alike:
        return known
    note = f"of {width.removeprefix(WIDTH)} jobs at once" if by_width else "at this hour"
    median_s, spread_s, count = wait_spread(alike)
    newest = alike[0]
    return Estimate(
        median_s, spread_s, count, newest.at, newest.source, newest.unit, _WAIT, site, note
    )


def _waits_at(source: Source, site: str, now: float) -> Sequence[Measurement]:
    return source.query(_WAIT, site, until=now, newest=True, limit=WAITS_READ)


def free_space(
    source: Source,
    site: str,
    now: float,
    max_age_s: float = FRESH_S,
    last: int = _LAST_SPACES,
) -> Estimate | None:
    """How much may still be written at a site, bytes: the least of the ``last`` that each of its
    hosts measured. None where none did within ``max_age_s``."""
    hosts = [s for s in source.subjects(_SPACE) if s.partition("/")[0] == site]
    rows = [
        row
        for host in hosts
        for row in source.query(_SPACE, host, until=now, newest=True, limit=last)
        if row.at >= now - max_age_s
    ]
    if not rows:
        return None
    least = min(rows, key=lambda row: row.value)
    return Estimate(
        least.value, 0.0, len(rows), max(row.at for row in rows), least.source, least.unit,
        _SPACE, least.subject,
    )  # fmt: skip


class Knowledge:
    """The source of estimates for site selection (its ``MeasurementSource``): probes replace
    missing transfers; everything else is the archive's."""

    def __init__(self, source: Source) -> None:
        self._source = source
        # All are asked for, one after the other, and come from one plane through many transfers.
        self._terms = lru_cache(_MOST_PAIRS)(partial(transfer_terms, source))
        self._waits_at = lru_cache(_MOST_PAIRS)(partial(_waits_at, source))

    def estimate(
        self, metric: str, subject: str, now: float, max_age_s: float | None = None
    ) -> Estimate | None:
        """The estimate at ``now`` (Unix seconds), of nothing later."""
        known: Estimate | None
        src, pair, dst = subject.partition(">")
        if pair and metric == "throughput":
            known = gamma_a(self._source, src, dst, now)
        elif pair and metric == "path_throughput":
            known = path_throughput(self._source, src, *dst.rpartition("/")[::2], now)
        elif pair and metric in _TERMS:
            known = self._terms(src, dst, now).get(metric)
        elif pair and metric in _OF_PATHS:
            known = path_state(self._source, metric, src, dst, now)
        elif metric == _SPACE:
            known = free_space(self._source, subject, now)
        elif metric == _WAIT and (WIDTH in subject or "@" not in subject):
            known = queue_wait(self._source, subject, now, self._waits_at)
        else:
            return self._source.estimate(metric, subject, now, max_age_s)
        if max_age_s is None or known is None or known.age_s(now) <= max_age_s:
            return known
        return None

    def subjects(self, metric: str) -> Sequence[str]:
        """The archive's."""
        return self._source.subjects(metric)


class Listed:
    """A source that lists its subjects once, and only looks up what was measured. For use during
    some seconds."""

    def __init__(self, source: Source) -> None:
        self._source, self.query = source, source.query
        self.subjects = cache(source.subjects)
        self._names = cache(lambda metric: frozenset(self.subjects(metric)))

    def estimate(
        self, metric: str, subject: str, now: float, max_age_s: float | None = None
    ) -> Estimate | None:
        """The source's."""
        if subject not in self._names(metric):
            return None
        return self._source.estimate(metric, subject, now, max_age_s)


def known_estimates(
    source: Source,
    sites: Collection[str],
    transformations: Collection[str],
    now: float,
    may_see: Callable[[str, str], bool] = lambda metric, subject: True,
) -> dict[tuple[str, str], Estimate]:
    """All that site selection reads of these sites, the paths between them, and transformations, by
    metric and subject, as :class:`Knowledge` has it; without what somebody may not see."""
    seen = Knowledge(Listed(source))
    estimates: dict[tuple[str, str], Estimate] = {}
    for metric in _FOR_MAPPING:
        made_of = _MADE_OF.get(metric, (metric,))
        for subject in dict.fromkeys(
            s for made_metric in made_of for s in source.subjects(made_metric)
        ):
            name, _, site = subject.rpartition("@")
            is_run = subject in transformations or (name in transformations and site in sites)
            ends = [end.partition("/")[0] for end in subject.split(">")]
            key = (metric, subject)
            if all(end in sites for end in ends):  # hosts speak for their sites
                if metric != _DISKS:  # which says more than its site
                    key = ("throughput" if metric == _PROBES else metric, ">".join(ends))
            elif not is_run and metric not in _OF_NO_PLACE:
                continue
            if key not in estimates and may_see(*key):
                # What has only measurements of the future is told too: who reads it says so.
                known = seen.estimate(*key, now) or seen.estimate(*key, math.inf)
                if known is not None:
                    estimates[key] = known
    widths = [name for name in transformations if name.startswith(WIDTH)]
    for key in ((_WAIT, f"{width}@{site}") for width in widths for site in sites):
        known = seen.estimate(*key, now) if may_see(*key) else None
        if known is not None:
            estimates[key] = known
    return estimates


def _or_probed(
    source: Source, moved: Estimate | None, src: str, dst: str, now: float
) -> Estimate | None:
    """The rate of transfers, or of probes if these are newer and no transfer is of the last day."""
    if moved is not None and moved.age_s(now) <= FRESH_S:
        return moved
    probed = _of_hosts(source, _PROBES, src, dst, now, max)
    if probed is None or probed.value <= 0:
        return moved
    return probed if moved is None or probed.at > moved.at else moved


def _of_hosts(
    source: Source,
    metric: str,
    src: str,
    dst: str,
    now: float,
    best: Callable[..., Estimate],
    max_age_s: float | None = None,
) -> Estimate | None:
    """The best of the pairs of hosts at two sites, of those measured a day before the newest or
    later."""
    rates = []
    for subject in source.subjects(metric):
        ends = tuple(end.partition("/")[0] for end in subject.split(">"))
        if ends == (src, dst):
            known = source.estimate(metric, subject, now, max_age_s)
            if known is not None:
                rates.append(replace(known, note=f"by {metric} of {subject}"))
    if not rates:
        return None
    newest = max(known.at for known in rates)
    # Subjects come in alphabetical order, and the first of equals is taken.
    return best((k for k in rates if k.at >= newest - FRESH_S), key=lambda known: known.value)
