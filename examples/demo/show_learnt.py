"""What earlier runs taught: beliefs that measurements changed, and jobs that moved for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from examples.demo import markup
from examples.demo.facts import RunFacts
from examples.demo.words import (
    belief_name,
    counted,
    quantity,
    short_name,
    source_text,
    term_text,
)

_SHOWN = 8


def learnt(facts: RunFacts) -> str:
    """The section's content."""
    if not facts.earlier_measurements:
        return (
            "<p>The archive was empty: sites were chosen from what the catalogs claim. "
            "The next run will use what this one measured.</p>"
        )
    moved, beliefs = facts.moved_jobs, facts.moved_beliefs
    makespan = facts.taught.get("makespan_s", {})
    words = (
        f"{counted(facts.earlier_measurements, 'measurement')} of earlier runs were known. "
        f"They changed {counted(len(beliefs), 'belief')} and moved {len(moved)} of "
        f"{counted(facts.jobs, 'job')}, compared with what the catalogs alone would have led to. "
        f"By the catalogs alone the end was expected after {term_text(makespan.get('before'))}; "
        f"with the measurements after {term_text(makespan.get('after'))}; it came after "
        f"{facts.makespan_s:.1f} s."
    )
    return f"<p>{markup.text(words)}</p>{_moves(moved)}{_beliefs(beliefs)}"


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


def _beliefs(beliefs: Sequence[Mapping[str, Any]]) -> str:
    if not beliefs:
        return ""
    rows = [_belief(item) for item in beliefs]
    head = ("belief", "", "by the catalogs", "source", "now", "source and age")
    numbers = frozenset({2, 4})
    out = markup.table("Beliefs that changed most", head, rows[:_SHOWN], numbers)
    if len(rows) > _SHOWN:
        rest = markup.table("Other beliefs that changed", head, rows[_SHOWN:], numbers)
        out += markup.details(f"{counted(len(rows) - _SHOWN, 'more belief')} that changed", rest)
    return out


def _belief(item: Mapping[str, Any]) -> str:
    kind, before, after = item["kind"], item["before"], item["after"]
    cells = (
        belief_name(item["what"], kind),
        item["what"].partition(" ")[0],
        quantity(kind, before["value"]),
        source_text(before),
        quantity(kind, after["value"]),
        source_text(after),
    )
    return markup.row([markup.text(cell) for cell in cells], frozenset({2, 4}))
