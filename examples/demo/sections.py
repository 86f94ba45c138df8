"""What the demo adds to the page of a run: what earlier runs taught, the science, what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adon.report import markup
from adon.report.messages import (
    counted,
    estimate_name,
    quantity,
    short_name,
    source_text,
    term_text,
)
from adon.report.page import Card, Section, render
from examples.demo.facts import DemoFacts

_SHOWN = 8


def demo_page(facts: DemoFacts) -> str:
    """The report's page."""
    planned = bool(facts.mapping["placements"])
    first = [Section("learnt", "What earlier runs changed", learnt(facts))] if planned else []
    last = [Section("science", "Science", science(facts))] if planned else []
    last.append(Section("left", "What is left", left(facts)))
    return render(facts, first, last, _cards(facts))


def _cards(facts: DemoFacts) -> list[Card]:
    cards = [Card(f.headline, f.value) for f in facts.science.rows if f.headline]
    if facts.without:
        cards.insert(0, Card("without ADON", f"about {facts.without.random_s:.0f} s"))
    still = facts.open_reservations, facts.flows_left
    cards.append(Card("paths / flows left", f"{still[0]} / {still[1]}", any(still)))
    return cards


def learnt(facts: DemoFacts) -> str:
    """The section's content."""
    if not facts.earlier_measurements:
        return (
            "<p>The archive was empty: sites were chosen from the catalogs alone. "
            "The next run uses the measurements of this one.</p>"
        )
    moved_jobs, estimates = facts.moved_jobs, facts.moved_estimates
    makespan = facts.taught.get("makespan_s", {})
    sentence = (
        f"{counted(facts.earlier_measurements, 'measurement')} of earlier runs were known. "
        f"They changed {counted(len(estimates), 'estimate')} and moved {len(moved_jobs)} of "
        f"{counted(facts.jobs, 'job')}, compared with the mapping by the catalogs alone. "
        f"By the catalogs alone, the expected time was {term_text(makespan.get('before'))}; "
        f"with the measurements {term_text(makespan.get('after'))}; the run took "
        f"{facts.makespan_s:.1f} s."
    )
    return f"<p>{markup.text(sentence)}</p>{_moves(moved_jobs)}{_estimates(estimates)}"


def moves(moved: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The jobs that moved, by (from, to), the largest group first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for job in moved:
        groups.setdefault((job["before"], job["after"]), []).append(job)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _moves(moved: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for (before, after), jobs in moves(moved).items():
        kinds: dict[str, list[str]] = {}
        for job in jobs:
            kinds.setdefault(short_name(job["transformation"]), []).append(job["job"])
        lines = [f"{name}: {', '.join(ids)}" for name, ids in kinds.items()]
        title = f"{counted(len(jobs), 'job')} moved from {before} to {after}"
        parts.append(markup.details(title, markup.bullets(lines)))
    return "".join(parts)


def _estimates(estimates: Sequence[Mapping[str, Any]]) -> str:
    if not estimates:
        return ""
    rows = [_estimate_row(item) for item in estimates]
    head = ("estimate", "", "by the catalogs", "source", "now", "source and age")
    numbers = frozenset({2, 4})
    out = markup.table("Estimates that changed most", head, rows[:_SHOWN], numbers)
    if len(rows) > _SHOWN:
        rest = markup.table("Other estimates that changed", head, rows[_SHOWN:], numbers)
        out += markup.details(f"{counted(len(rows) - _SHOWN, 'more estimate')} that changed", rest)
    return out


def _estimate_row(item: Mapping[str, Any]) -> str:
    kind, before, after = item["kind"], item["before"], item["after"]
    cells = (
        estimate_name(item["what"], kind),
        item["what"].partition(" ")[0],
        quantity(kind, before["value"]),
        source_text(before),
        quantity(kind, after["value"]),
        source_text(after),
    )
    return markup.row([markup.text(cell) for cell in cells], frozenset({2, 4}))


def science(facts: DemoFacts) -> str:
    """The result against what was expected."""
    if not facts.science.rows:
        return f"<p>Not compared: the workflow ended as {markup.text(facts.state)}.</p>"
    numbers = frozenset({1})
    rows = [
        markup.row([markup.text(cell) for cell in (f.name, f.value, f.goal)], numbers)
        for f in facts.science.rows
    ]
    table = markup.table("Science", ("figure", "value", "goal"), rows, numbers)
    return table + markup.picture("The result", facts.science.picture)


def left(facts: DemoFacts) -> str:
    """What the run left behind, and what it put into the archive."""
    return markup.bullets(
        [
            f"{counted(facts.open_reservations, 'reservation')} still held at the end",
            f"{counted(facts.flows_left, 'flow')} still on the switches at the end",
            f"{counted(facts.status_records, 'status record')} of this run in the archive, "
            "beside goodput and run times",
        ]
    )
