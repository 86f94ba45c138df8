"""Site selection for people: tables of terms, beliefs, and what measurements changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from network_provisioner.errors import InputError
from network_provisioner.units import format_rate, format_size
from site_selector.beliefs import World
from site_selector.fields import did_you_mean
from site_selector.mapping import beliefs_dict
from site_selector.placement import Alternative, Placement, finite
from site_selector.placement import Mapping as SiteMapping
from site_selector.reasons import seconds

# A belief that moved by less than this is the same belief measured again.
_MOVED = 0.05


def explain_text(mapping: SiteMapping, jobs: Iterable[str] | None = None) -> str:
    """For each job the candidate sites with every term, which Γ bound, sources and ages, and why.

    ``jobs`` limits it to some ids. Raises InputError for an id that the mapping does not have.
    """
    placed = {p.job: p for p in mapping.placements}
    wanted = list(placed) if jobs is None else list(jobs)
    for job in wanted:
        if job not in placed:
            raise InputError(
                f"job {job!r} is not in workflow {mapping.workflow!r}{did_you_mean(job, placed)}"
            )
    blocks = [summary_text(mapping)] if jobs is None else []
    blocks += [_job_text(placed[job]) for job in wanted]
    return "\n\n".join(blocks)


def summary_text(mapping: SiteMapping) -> str:
    """Workflow, policy, expected makespan, jobs per site, and the portfolio beside it."""
    counts: dict[str, int] = {}
    for placement in mapping.placements:
        counts[placement.site] = counts.get(placement.site, 0) + 1
    where = ", ".join(f"{n} at {site}" for site, n in sorted(counts.items(), key=lambda i: -i[1]))
    lines = [
        f"{mapping.workflow}: {len(mapping.placements)} jobs, {where}",
        f"expected to end after {seconds(mapping.makespan_s)} (policy {mapping.policy}"
        + (f", results to {mapping.output_site})" if mapping.output_site else ")"),
        "under the same beliefs: "
        + ", ".join(
            f"{name} {seconds(value)}"
            for name, value in sorted(mapping.portfolio.items(), key=lambda i: i[1])
        ),
    ]
    return "\n".join(lines)


def show_text(world: World) -> str:
    """What ADON believes about each site and path, with source and age."""
    return beliefs_text(beliefs_dict(world))


def beliefs_text(beliefs: Mapping[str, Any]) -> str:
    """The same from the ``beliefs`` of a saved mapping."""
    sites = [["site", "N (workers)", "T_q"]]
    for name, b in beliefs["sites"].items():
        sites.append([name, _cited(b["n"], _count), _cited(b["t_q"], seconds)])
    paths = [["path", "Γ_a (available)", "Γ_t (after tuning)", "RTT"]]
    for name, b in beliefs["paths"].items():
        paths.append(
            [
                name,
                _cited(b["gamma_a"], _rate),
                _cited(b["gamma_t"], _rate),
                seconds(b["rtt_s"]) if b["rtt_s"] else "unknown",
            ]
        )
    compute = [["transformation@site", "on one worker"]]
    for name, b in beliefs["compute"].items():
        show = seconds if b["kind"] == "runtime" else _bytes_rate
        compute.append([name, _cited(b, show)])
    return "\n\n".join(_table(rows) for rows in (sites, paths, compute))


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
        show = _SHOW[item["kind"]]
        lines.append(
            f"  {item['what']}: {_cited(item['before'], show)} -> {_cited(item['after'], show)}"
        )
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


def _job_text(placement: Placement) -> str:
    rows = [["  site", "T_q", "S_c/(N·Γ_c)", "S_t/min(Γ_t,Γ_a)", "T_t", "from"]]
    for option in placement.alternatives:
        mark = "* " if option.site == placement.site else "  "
        rows.append(
            [
                mark + option.site,
                seconds(option.t_q_s),
                seconds(option.t_c_s),
                _network(option),
                seconds(option.t_t_s),
                _sources(option),
            ]
        )
    head = f"{placement.job}  {placement.transformation} -> {placement.site}"
    return "\n".join([head, _table(rows), f"  why: {placement.reason}"])


def _network(option: Alternative) -> str:
    if not option.path:
        return seconds(option.t_n_s)
    moved = format_size(option.s_t_bytes)
    return f"{seconds(option.t_n_s)} ({moved}, {option.gamma} of {option.path})"


def _sources(option: Alternative) -> str:
    shows = {"t_q": seconds, "n": _count, "gamma_c": _bytes_rate, "gamma_a": _rate}
    names = {"t_q": "T_q", "n": "N", "gamma_c": "Γ_c", "gamma_a": "Γ_a", "gamma_t": "Γ_t"}
    keys = ["t_q", "n", "gamma_c"]
    keys += ["gamma_a" if option.gamma == "Γ_a" else "gamma_t"] if option.path else []
    parts = []
    for key in keys:
        if key in option.inputs:
            belief = option.inputs[key]
            text = f"{names[key]} {_cited(belief, shows.get(key, _rate))}"
            used = belief.get("used")
            if used is not None and used < 1:
                text += f", shared to {used:.2g} each"
            parts.append(text)
    return "; ".join(parts)


def _cited(belief: Mapping[str, Any], show: Any) -> str:
    """Value, source, and age where it was measured."""
    value = belief["value"]
    text = (
        "no bound"
        if value is None and show in (_rate, _bytes_rate)
        else show(float("inf") if value is None else value)
    )
    source = belief["source"]
    if belief.get("age_s"):
        source += f" {seconds(belief['age_s'])} ago"
    if belief.get("note") and source.startswith("archive"):
        source += f", {belief['note']}"
    return f"{text} [{source}]"


def _count(value: float) -> str:
    return f"{value:g}"


def _rate(value: float) -> str:
    return format_rate(value)


def _bytes_rate(value: float) -> str:
    return f"{format_size(value)}/s"


_SHOW = {"count": _count, "seconds": seconds, "rate": _rate, "bytes_rate": _bytes_rate}


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
