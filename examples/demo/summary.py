"""The few lines that the demo ends with, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adon.report.messages import (
    counted,
    estimate_name,
    failure_text,
    quantity,
    source_text,
    term_text,
)
from examples.demo.facts import DemoFacts
from examples.demo.sections import moves
from network_provisioner.base.model import Transit
from network_provisioner.base.units import format_rate, format_size

COLUMNS = 100
_INDENT = " " * 11
_MOST_WAYS = 4
_MOST_MOVES = 2
_MOST_ESTIMATES = 3
_MOST_WARNINGS = 8
_MOST_FAILURES = 3
_MOST_WORDS = 6  # lines of a failed job's own


def summary_text(facts: DemoFacts, reports: tuple[Path, Path]) -> str:
    """Did it work, where, how fast, what is left, what was learnt.

    Paths are never broken, so that they can be copied; they may pass the last column.
    """
    lines = ["", *_entry("workflow", _workflow(facts)), *failed(facts)]
    if facts.was_planned:
        lines += [*_entry("planner", _planner(facts)), *_network(facts)]
        lines += [*_gain(facts), *_science(facts)]
    lines += _entry(
        "left over",
        f"{counted(facts.open_reservations, 'reservation')}, "
        f"{counted(facts.flows_left, 'flow')} on switches",
    )
    if facts.status_records:
        lines += _entry(
            "recorded",
            f"{counted(facts.status_records, 'status record')}; goodput and run times are in the "
            "archive, for the next run",
        )
    if facts.state == "success":
        lines += changed(facts)
    lines += [
        *_warnings(facts),
        f"report     {reports[0]}",
        f"{_INDENT}{reports[1]}",
        *_entry("dashboard", "make dashboard (adon dashboard) shows the run in a browser"),
    ]
    return "\n".join(lines)


def _entry(name: str, words: str) -> list[str]:
    return textwrap.wrap(
        words, COLUMNS, initial_indent=f"{name:<11}", subsequent_indent=_INDENT,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _workflow(facts: DemoFacts) -> str:
    """How it ended, after how long, and where its jobs were to run."""
    sites = Counter(p["site"] for p in facts.mapping["placements"])
    where = ", ".join(f"{count} at {site}" for site, count in sorted(sites.items()))
    if not facts.was_planned:
        return f"{facts.state}, nothing was submitted"
    done = "" if facts.state == "success" else f"{facts.jobs_done} of "
    were = "" if facts.state == "success" else " done"
    line = f"{facts.state}: {done}{counted(facts.jobs, 'job')}{were}"
    return f"{line} in {facts.makespan_s:.1f} s ({where})"


def failed(facts: DemoFacts) -> list[str]:
    """What went wrong: what cut the run short, the failed jobs with their last words, who waited in
    vain, and where the files are. Nothing for a success."""
    lines = _entry("stopped", facts.stopped) if facts.stopped else []
    lines += _entry("reason", facts.reason) if facts.reason else []
    for failure in facts.failures[:_MOST_FAILURES]:
        lines += _entry("failed", failure_text(failure))
        lines += [f"{_INDENT}| {line}"[:COLUMNS] for line in failure.tail[-_MOST_WORDS:]]
        lines += [f"{_INDENT}{path}" for path in failure.files]
    if len(facts.failures) > _MOST_FAILURES:
        more = counted(len(facts.failures) - _MOST_FAILURES, "more failed job")
        lines += _entry("", f"and {more}, see the report")
    for reason in facts.waiting[:_MOST_FAILURES]:
        lines += _entry("waiting", reason)
    if facts.state != "success" and facts.submit_dir:
        lines.append(f"{'files':<11}{facts.submit_dir}")
    return lines


def _planner(facts: DemoFacts) -> str:
    if facts.planner == "embedded":
        return "embedded, for machines without Pegasus (pegasus-plan is not on PATH)"
    return facts.planner


def _network(facts: DemoFacts) -> list[str]:
    held = [t for t in facts.transits if t.grant.path]
    lines = _entry(
        "network",
        f"{facts.network}: {len(held)} of {counted(len(facts.transits), 'transfer')} between "
        "sites had a path and a rate reserved",
    )
    if facts.network_note:
        lines += _entry("", facts.network_note)
    ways: dict[tuple[str, ...], list[Transit]] = {}
    for t in held:
        ways.setdefault(
            (t.request.src, t.request.dst, t.grant.layer, *t.grant.path[1:-1]), []
        ).append(t)
    ranked = sorted(ways.values(), key=lambda ts: -sum(t.usage.bytes for t in ts))
    for ts in ranked[:_MOST_WAYS]:
        lines += _entry("", _way(ts))
    if len(ranked) > _MOST_WAYS:
        lines += _entry("", f"and {counted(len(ranked) - _MOST_WAYS, 'more path')}, see the report")
    return lines


def _way(transits: Sequence[Transit]) -> str:
    """What the transfers over one path moved, and how fast."""
    t = transits[0]
    moved_size = format_size(sum(t.usage.bytes for t in transits))
    most = "≤ " if len(transits) > 1 else ""
    many = f" in {len(transits)} transfers" if len(transits) > 1 else ""
    return (
        f"{t.request.src} → {t.request.dst} over {'-'.join(t.grant.path[1:-1])} "
        f"({t.grant.layer.upper()}): "
        f"{moved_size}{many} at {most}{format_rate(max(t.usage.goodput_bps for t in transits))}, "
        f"{format_rate(max(t.request.min_bps for t in transits))} reserved"
    )


def _gain(facts: DemoFacts) -> list[str]:
    """What ADON was worth: the model is that of the mapping, with what was measured by now."""
    if facts.without is None:
        return []
    usual, heft = facts.without.random_s, facts.without.heft_s
    return _entry(
        "gain",
        f"{facts.makespan_s:.0f} s; without ADON about {usual:.0f} s by the model "
        f"({heft:.0f} s with Pegasus's Heft)",
    )


def _science(facts: DemoFacts) -> list[str]:
    return _entry("science", facts.science.words) if facts.science.words else []


def changed(facts: DemoFacts) -> list[str]:
    """What measurements changed, in at most eight lines."""
    if not facts.earlier_measurements:
        return _entry(
            "next time",
            "sites were chosen from the catalogs alone; run it again to see what these "
            "measurements change",
        )
    moved_jobs, estimates = facts.moved_jobs, facts.moved_estimates
    lines = _one_line(
        "changed",
        f"{counted(facts.earlier_measurements, 'earlier measurement')} moved {len(moved_jobs)} of "
        f"{counted(facts.jobs, 'job')} and changed {counted(len(estimates), 'estimate')}",
    )
    groups = list(moves(moved_jobs).items())
    for (before, after), jobs in groups[:_MOST_MOVES]:
        more = len(moved_jobs) - sum(len(js) for _, js in groups[:_MOST_MOVES])
        last = (before, after) == groups[:_MOST_MOVES][-1][0]
        tail = f", and {counted(more, 'other')} elsewhere" if last and more else ""
        lines += _one_line("", f"{counted(len(jobs), 'job')}: {before} → {after}{tail}")
    for item in _telling(estimates):
        show = item["kind"]
        lines += _one_line(
            "",
            f"{estimate_name(item['what'], show)}: {quantity(show, item['before']['value'])} "
            f"({item['before']['source']}), now {quantity(show, item['after']['value'])} "
            f"({source_text({**item['after'], 'note': ''})})",
        )
    if len(estimates) > _MOST_ESTIMATES:
        rest = counted(len(estimates) - _MOST_ESTIMATES, "more estimate")
        lines += _one_line("", f"and {rest}, see the report")
    makespan = facts.taught.get("makespan_s", {})
    lines += _one_line(
        "",
        f"expected end: {term_text(makespan.get('before'))} by the catalogs, "
        f"{term_text(makespan.get('after'))} with measurements; it took {facts.makespan_s:.1f} s",
    )
    return lines


def _telling(estimates: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A few estimates, of different kinds where possible, in their order.

    Those that were zero come last: any value is infinitely more, which says little.
    """
    ranked = sorted(estimates, key=lambda item: not item["before"]["value"])
    kinds: dict[str, int] = {}
    turns = []
    for rank, item in enumerate(ranked):
        kind = item["what"].partition(" ")[0]
        kinds[kind] = kinds.get(kind, 0) + 1
        turns.append((kinds[kind], rank))
    return [ranked[rank] for _, rank in sorted(turns)[:_MOST_ESTIMATES]]


def _one_line(name: str, words: str) -> list[str]:
    """One line, with what does not fit cut off."""
    room = COLUMNS - len(_INDENT)
    return [f"{name:<11}{words if len(words) <= room else words[: room - 1] + '…'}"]


def _warnings(facts: DemoFacts) -> list[str]:
    lines = [
        line for warning in facts.warnings[:_MOST_WARNINGS] for line in _entry("warning", warning)
    ]
    if len(facts.warnings) > _MOST_WARNINGS:
        more = len(facts.warnings) - _MOST_WARNINGS
        lines += _entry("", f"and {counted(more, 'more warning')}, see the report")
    return lines
