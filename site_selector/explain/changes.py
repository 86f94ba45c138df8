"""What new measurements changed: beliefs that moved, and jobs that moved with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from site_selector.explain.cited import cited
from site_selector.explain.reasons import seconds
from site_selector.mapping.placement import Mapping as SiteMapping
from site_selector.mapping.placement import finite

# A belief that moved by less than this is the same belief measured again.
_MOVED = 0.05


def changes(before: SiteMapping, after: SiteMapping) -> dict[str, Any]:
    """What new measurements changed: jobs that moved, beliefs that moved, both makespans.

    ``moved`` lists {job, transformation, before, after}; ``beliefs`` lists {what, before, after}
    with the beliefs as they are in the mappings, those first that changed most. A rate and a
    runtime of the same transformation cannot be compared and are left out. JSON-ready.
    """
    old = before.sites
    moved = [
        {
            "job": p.job,
            "transformation": p.transformation,
            "before": old[p.job],
            "after": p.site,
        }
        for p in after.placements
        if p.job in old and old[p.job] != p.site
    ]
    return {
        "makespan_s": {"before": finite(before.makespan_s), "after": finite(after.makespan_s)},
        "moved": moved,
        "beliefs": _belief_changes(before.beliefs, after.beliefs),
    }


def changes_text(before: SiteMapping, after: SiteMapping, limit: int = 12) -> str:
    """:func:`changes` in words, at most ``limit`` lines of each kind."""
    found = changes(before, after)
    lines = [
        f"the last run's measurements moved {len(found['beliefs'])} beliefs and "
        f"{len(found['moved'])} of {len(after.placements)} jobs; expected end "
        f"{seconds(before.makespan_s)} before, {seconds(after.makespan_s)} now"
    ]
    for item in found["beliefs"][:limit]:
        shown = (cited(item[when], item["kind"]) for when in ("before", "after"))
        lines.append(f"  {item['what']}: {' -> '.join(shown)}")
    lines += _more(found["beliefs"], limit)
    moves: dict[tuple[str, str], list[str]] = {}
    for item in found["moved"]:
        moves.setdefault((item["before"], item["after"]), []).append(item["job"])
    for (old, new), jobs in moves.items():
        named = ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")
        lines.append(f"  {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} {old} -> {new}: {named}")
    return "\n".join(lines)


def _more(items: Sequence[Any], limit: int) -> list[str]:
    return [f"  and {len(items) - limit} more"] if len(items) > limit else []


def _belief_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = {(what, kind): belief for what, kind, belief in _flat(before)}
    ranked: list[tuple[float, dict[str, Any]]] = []
    for what, kind, new in _flat(after):
        old = known.get((what, kind))
        if old is None:
            continue
        factor = _factor(old["value"], new["value"])
        if factor > 1 + _MOVED or old["source"] != new["source"]:
            ranked.append((factor, {"what": what, "kind": kind, "before": old, "after": new}))
    # What nobody had claimed before surprises nobody: claims that were wrong come first.
    ranked.sort(key=lambda item: (item[1]["before"]["source"] == "default", -item[0]))
    return [item for _, item in ranked]


def _factor(a: float | None, b: float | None) -> float:
    if a == b:
        return 1.0
    if not a or not b:
        return float("inf")
    return max(a / b, b / a)


def _flat(beliefs: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(name, kind of quantity, belief) of every belief that can be measured."""
    out = []
    for site, b in beliefs.get("sites", {}).items():
        out += [(f"N {site}", "count", b["n"]), (f"T_q {site}", "seconds", b["t_q"])]
    for path, b in beliefs.get("paths", {}).items():
        out.append((f"Γ_a {path}", "rate", b["gamma_a"]))
        if "setup" in b:
            out.append((f"set-up {path}", "seconds", b["setup"]))
    for name, b in beliefs.get("compute", {}).items():
        out.append(
            (f"Γ_c {name}", "seconds", b) if b["kind"] == "runtime"
            else (f"Γ_c {name}", "bytes_rate", b)
        )  # fmt: skip
    return out
