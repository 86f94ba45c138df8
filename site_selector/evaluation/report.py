"""What an evaluation comes to: ratios over all cases, by family, as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from site_selector.evaluation.cases import OURS, POLICIES, Outcome, Setting
from site_selector.evaluation.traces import TraceFile
from site_selector.evaluation.worlds import REGIMES, Platform

FORMAT = "adon-site-evaluation/1"
OVERALL = "all"
AS_RUN = "best_known_as_run"
REFERENCES = ("best_known", "lower_bound", AS_RUN)
HEAD = (
    "family", "cases>", "policy", "÷ best known>", "worst>", "÷ lower bound>", "worst>", "as run>",
    "worst>",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One case: a trace on the platform of that number, with its outcomes by regime."""

    trace: TraceFile
    platform: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Ratios of makespans: geometric mean and worst of ``cases``."""

    geomean: float
    worst: float
    cases: int
    worst_case: str


def ratio(outcome: Outcome, policy: str, reference: str) -> float:
    """A policy's makespan ÷ the best known or ÷ the lower bound, or as HTCondor runs it ÷ the best
    known; 1 where both are nothing."""
    made = (outcome.as_run_s if reference == AS_RUN else outcome.makespan_s)[policy]
    least = outcome.lower_bound_s if reference == "lower_bound" else outcome.best_known_s
    if least > 0:
        return made / least
    return 1.0 if made == 0 else math.inf


@dataclass(frozen=True, slots=True)
class Honesty:
    """ADON's forecasts in one regime, run as HTCondor does: the geometric mean of true ÷ shown, and
    the share of ``cases`` that ended within the range."""

    true_of_shown: float
    in_range: float
    cases: int


def honesty(rows: Iterable[Row], regime: str) -> Honesty | None:
    """None if nothing was forecast."""
    ratios, within = [], 0
    for outcome in (o for row in rows for o in row.outcomes if o.regime == regime):
        shown, true_s = outcome.forecast, outcome.as_run_s[OURS]
        if shown is not None:
            ratios.append(true_s / shown.median_s)
            within += shown.low_s <= true_s <= shown.high_s
    if not ratios:
        return None
    return Honesty(geometric_mean(ratios), within / len(ratios), len(ratios))


def summarise(rows: Iterable[Row], regime: str, policy: str, reference: str) -> Summary:
    """Over the rows, in one regime. Raises ValueError if there are none."""
    values = []
    for row in rows:
        for outcome in row.outcomes:
            if outcome.regime == regime:
                name = f"{row.trace.path} on platform {row.platform}"
                values.append((ratio(outcome, policy, reference), name))
    worst, name = max(values)
    return Summary(geometric_mean(value for value, _ in values), worst, len(values), name)


def geometric_mean(values: Iterable[float]) -> float:
    """The n-th root of the product. Raises ValueError if there are none."""
    numbers = list(values)
    if not numbers:
        raise ValueError("no values")
    return math.exp(math.fsum(math.log(value) for value in numbers) / len(numbers))


def families(rows: Iterable[Row]) -> list[str]:
    """Names of the families, in order."""
    return sorted({row.trace.trace.family for row in rows})


def as_dict(
    rows: Sequence[Row],
    platforms: Sequence[Platform],
    setting: Setting,
    skipped: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything, JSON-ready. Holds nothing that differs between two runs with the same seed."""
    traces = {row.trace.path: row.trace for row in rows}
    return {
        "format": FORMAT,
        "seed": setting.seed,
        "errors": setting.error,
        "staging": setting.staging,
        "effort": setting.effort,
        "policies": list(POLICIES),
        "regimes": list(REGIMES),
        "summary": _summaries(rows),
        "forecasts": {
            regime: asdict(summary) for regime in REGIMES if (summary := honesty(rows, regime))
        },
        "traces": [
            {
                "file": path,
                "sha256": summary.sha256,
                "family": summary.trace.family,
                "tasks": len(summary.trace.tasks),
                "files": len(summary.trace.files),
                "bytes": math.fsum(summary.trace.size_bytes),
                "core_seconds": math.fsum(summary.trace.runtime_s),
                "notes": list(summary.trace.notes),
            }
            for path, summary in traces.items()
        ],
        "left_out": list(skipped),
        "platforms": [asdict(platform) for platform in platforms],
        "cases": [_case(row) for row in rows],
    }


def _summaries(rows: Sequence[Row]) -> dict[str, Any]:
    """regime → reference → family (or "all") → policy → the summary's fields."""
    members = {OVERALL: list(rows)}
    for family in families(rows):
        members[family] = [row for row in rows if row.trace.trace.family == family]
    return {
        regime: {
            reference: {
                name: {
                    policy: asdict(summarise(member_rows, regime, policy, reference))
                    for policy in POLICIES
                }
                for name, member_rows in members.items()
            }
            for reference in REFERENCES
        }
        for regime in REGIMES
    }


def _case(row: Row) -> dict[str, Any]:
    return {
        "trace": row.trace.path,
        "platform": row.platform,
        "regimes": {
            outcome.regime: {
                "makespan_s": dict(outcome.makespan_s),
                "as_run_s": dict(outcome.as_run_s),
                "forecast": None if outcome.forecast is None else asdict(outcome.forecast),
                "best_known_s": outcome.best_known_s,
                "best_known_by": outcome.best_known_by,
                "lower_bound_s": outcome.lower_bound_s,
            }
            for outcome in row.outcomes
        },
    }


def tables(summary: Mapping[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """For each regime its lines (see HEAD): every policy in every family, and over all cases."""
    out = []
    for regime, references in summary.items():
        best, bound, as_run = (references[reference] for reference in REFERENCES)
        lines = []
        for name in sorted(best, key=lambda name: (name == OVERALL, name)):
            for policy in POLICIES:
                summaries = (by[name][policy] for by in (best, bound, as_run))
                ratios = [value for row in summaries for value in (row["geomean"], row["worst"])]
                lines.append(
                    [
                        name,
                        str(best[name][policy]["cases"]),
                        policy,
                        *(_shown(value) for value in ratios),
                    ]
                )
        out.append((regime, lines))
    return out


def _shown(value: float) -> str:
    """Three decimals near one, where they matter, fewer far from it."""
    if value < 10:
        return f"{value:.3f}"
    return f"{value:.1f}" if value < 1000 else f"{value:.3g}"
