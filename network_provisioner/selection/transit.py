"""Dynamic transit selection: which path a transfer takes (thesis, §3.3, Algorithm 3, Figure 6).

    metrics of each candidate path ─► scores s_i (lookup table) ─► Q = Σ w_i·s_i ─► best Q
                                        └─ paths that miss the QSpec are left out, with the reason

Pure: the caller brings paths, metrics and template; nothing is measured or reserved here.

Rules the thesis leaves open:

*   **Throughput.** The thesis's links carry no reservations, so it can only compare the measured
    throughput with the QSpec. Here ``free_bps`` can be *guaranteed* and decides whether the QSpec
    is met; a fresh measurement lowers the score only, and only where it is less than half of what
    the path should have given: hand-shakes, disks and small files cost a good transfer as much.
    A path with a link that can take no promise (``not_guaranteed``) is judged by what was measured,
    as in the thesis: less than the QSpec, headers aside, leaves it out, and nothing scores 1.
*   **Expected throughput**, which is scored, is what an elastic request may expect: its minimum and
    an equal part of what minima leave free on the tightest link (``share_bps``), as if everybody
    there took all that max-min fairness gives. A wide path full of others can so lose to a narrow
    one that is idle.
*   **Missing or stale** (older than the template's ``max_age_s``): throughput falls back to
    ``share_bps``; delay, jitter and loss score 1, the lowest score that meets the QSpec. A path
    that nobody measured is thus usable, and never preferred to one known to be as good. What the
    topology says of a path's delay, jitter and loss is no measurement: it scores nothing, but a
    path that cannot meet the QSpec by it is left out.
*   **Detours**: a path that takes much longer for its rate than another one that is usable (see
    :func:`~network_provisioner.topology.graph.without_detours`) has to score higher by
    :data:`WORTH_A_DETOUR`; the topology's delay and rate count for that.
*   **Ties**: fewer hops, which leave the most to others; then more expected throughput, then
    shorter RTT, then names in alphabetical order. The order in which candidates are listed never
    matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from network_provisioner.base.model import PathScore
from network_provisioner.base.units import format_rate
from network_provisioner.templates.template import MIN_SCORE, Template
from network_provisioner.topology.graph import Path, without_detours

WORTH_A_DETOUR = 1.0  # of Q's 10: two paths that score nearly alike differ by chance
POOR = 0.5  # of what a path should give: less was measured of a poor one
ARRIVES = 0.9  # of a rate: what users get of it at least, beside headers and repeated packets


@dataclass(frozen=True, slots=True)
class Worsening:
    """A change for the worse beyond noise that lasts: Unix seconds when it began and was noticed,
    and the value before."""

    since: float
    noticed: float
    before: float


@dataclass(frozen=True, slots=True)
class Metric:
    """A value (b/s, seconds or a fraction), where it comes from, its age in seconds, and what made
    it worse, if anything did."""

    value: float
    source: str
    age_s: float = 0.0
    worsening: Worsening | None = None


@dataclass(frozen=True, slots=True)
class PathMetrics:
    """What is known of a path for the time of a request.

    ``free_bps``   what can still be reserved along all of it: decides whether the minimum is met
    ``share_bps``  what the request may expect to have there, its max-min fair share; None where it
                   may expect all that is free
    ``limit``      in words, what leaves no more
    ``blocked``    in words, why it must not be used at all
    ``failed``     in words, which of its links has failed
    ``not_guaranteed``  in words, which of its links can take no promise; "" for none
    """

    free_bps: float
    throughput: Metric | None = None
    delay: Metric | None = None
    jitter: Metric | None = None
    loss: Metric | None = None
    limit: str = ""
    blocked: str = ""
    share_bps: float | None = None
    failed: str = ""
    not_guaranteed: str = ""

    def get(self, metric: str, max_age_s: float) -> Metric | None:
        """The metric, or None where it is missing or stale."""
        value: Metric | None = getattr(self, metric)
        return None if value is None or value.age_s > max_age_s else value


@dataclass(frozen=True, slots=True)
class Score:
    """One metric's part in Q. ``metric`` is None where it was missing or stale."""

    metric: Metric | None
    score: float
    weight: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path with its qualification score Q, and why it was left out ("" where it was not)."""

    path: Path
    metrics: PathMetrics
    expected_bps: float
    scores: Mapping[str, Score]
    q: float
    rejected: str = ""

    def as_dict(self) -> PathScore:
        """A JSON-ready copy, for people who ask why."""
        return {
            "path": list(self.path.nodes),
            "layer": self.path.layer,
            "q": round(self.q, 6),
            "free_bps": self.metrics.free_bps,
            "expected_bps": self.expected_bps,
            "rejected": self.rejected,
            "not_guaranteed": self.metrics.not_guaranteed,
            "scores": {
                name: {
                    "value": s.metric.value if s.metric else None,
                    "source": s.metric.source if s.metric else "missing",
                    "age_s": round(s.metric.age_s, 3) if s.metric else None,
                    "score": round(s.score, 6),
                    "weight": round(s.weight, 6),
                }
                for name, s in self.scores.items()
            },
        }


@dataclass(frozen=True, slots=True)
class PathChoice:
    """The chosen candidate or None, all candidates best first, and the reason in words."""

    chosen: Candidate | None
    candidates: tuple[Candidate, ...]
    reason: str


def choose(
    paths: Sequence[tuple[Path, PathMetrics]],
    template: Template,
    min_bps: float | None = None,
    max_bps: float | None = None,
) -> PathChoice:
    """The path with the highest Q among those that meet the QSpec (thesis, Algorithm 3).

    ``min_bps`` and ``max_bps`` are what this request asks for; they default to the template's QSpec
    and RSpec, and without a ceiling to what the largest path has. Rules: see the module.
    """
    low = template.qspec.min_bps if min_bps is None else min_bps
    high = template.rspec.max_bps if max_bps is None else max_bps
    if high is None:
        high = max((path.capacity_bps for path, _ in paths), default=low)
    ranked = sorted((_judge(p, m, template, low, high) for p, m in paths), key=_rank)
    usable = [c for c in ranked if not c.rejected]
    ranked, usable = (_without_needless_detour(those, usable) for those in (ranked, usable))
    if not usable:
        why = "; ".join(f"{path_name(c.path)}: {c.rejected}" for c in ranked)
        return PathChoice(None, tuple(ranked), why or "no path joins the two sites")
    best = usable[0]
    reason = f"{path_name(best.path)} has the highest score, {best.q:.2f}, of {len(ranked)} path"
    reason += "s" if len(ranked) > 1 else ""
    if any(c.q > best.q for c in usable):
        reason += " that are no detour"
    others = "; ".join(
        f"{path_name(c.path)}: {c.rejected or f'scores {c.q:.2f}'}" for c in ranked[1:]
    )
    return PathChoice(best, tuple(ranked), f"{reason} ({others})" if others else reason)


def _without_needless_detour(those: list[Candidate], usable: list[Candidate]) -> list[Candidate]:
    """The same, beginning with the best that is no detour where the best is not worth one."""
    near = without_detours(c.path for c in usable)
    first = next((c for c in usable if c.path in near), None)
    if first is None or usable[0].q - first.q >= WORTH_A_DETOUR:
        return those
    return [first, *(c for c in those if c is not first)]


def explain(decision: PathChoice | None) -> list[PathScore]:
    """The candidates of a decision, JSON-ready."""
    return [] if decision is None else [c.as_dict() for c in decision.candidates]


def missed_terms(path: Path, known: PathMetrics, template: Template, low: float) -> str:
    """What of a QSpec a path misses by what was measured and what the topology says, room aside, in
    words; "" where it meets it. ``low`` is the least that is asked for, b/s."""
    measured = known.get("throughput", template.max_age_s)
    if known.not_guaranteed and measured is not None and measured.value < ARRIVES * low:
        return (
            f"{format_rate(measured.value)} measured {measured.age_s:.0f} s ago, "
            f"{format_rate(low)} needed, and {known.not_guaranteed}"
        )
    for name, declaration in declared_metrics(path).items():
        metric = known.get(name, template.max_age_s)
        words = _too_much(name, metric, template) or _too_much(name, declaration, template)
        if words:
            return words
    return ""


def declared_metrics(path: Path) -> dict[str, Metric | None]:
    """What the topology says of a path."""
    known = {"delay": path.rtt_s, "jitter": path.jitter_s, "loss": path.loss}
    return {k: None if v is None else Metric(v, "topology") for k, v in known.items()}


def _too_much(name: str, metric: Metric | None, template: Template) -> str:
    limit = template.qspec.limit(name)
    if metric is None or limit is None or metric.value <= limit:
        return ""
    return f"{name} {metric.value:g} ({metric.source}), at most {limit:g} allowed"


def _rank(c: Candidate) -> tuple[bool, float, int, float, float, tuple[str, ...]]:
    # Q is rounded so that the order of additions cannot decide between equals.
    path = c.path
    tie = (len(path.nodes), -c.expected_bps, path.rtt_s, path.nodes)
    return (bool(c.rejected), -round(c.q, 9), *tie)


def _judge(
    path: Path, known: PathMetrics, template: Template, low: float, high: float
) -> Candidate:
    measured = known.get("throughput", template.max_age_s)
    share = known.free_bps if known.share_bps is None else known.share_bps
    expected = Metric(share, "reservations")
    most = share if known.not_guaranteed else POOR * min(share, high)
    if measured is not None and measured.value < most:
        expected = measured
    unknown = bool(known.not_guaranteed) and measured is None and share >= low
    rate = None if unknown else expected
    scores: dict[str, Score] = {}
    for name, weight in template.weights.items():
        metric = rate if name == "throughput" else known.get(name, template.max_age_s)
        score = MIN_SCORE
        if metric is not None:
            score = template.score(name, metric.value, low, high)
        scores[name] = Score(metric, score, weight)
    q = sum(s.weight * s.score for s in scores.values())
    rejected = _no_room(known, low) or missed_terms(path, known, template, low)
    return Candidate(path, known, expected.value, scores, q, rejected)


def _no_room(known: PathMetrics, low: float) -> str:
    if known.failed or known.blocked:
        return known.failed or known.blocked
    if known.free_bps < low:
        words = f"{format_rate(known.free_bps)} free, {format_rate(low)} needed"
        return f"{words} ({known.limit})" if known.limit else words
    return ""


def path_name(path: Path) -> str:
    """Layer and nodes of a path, for people."""
    return f"{path.layer.upper()} {'-'.join(path.nodes)}"
