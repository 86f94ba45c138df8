"""Site selection for people: tables of terms, reasons and estimates, and the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from network_provisioner.base.errors import InputError, did_you_mean
from network_provisioner.base.units import format_rate, format_size
from site_selector.estimates.world import World, estimates_dict
from site_selector.explain.tables import table
from site_selector.mapping.placement import Alternative, Placement, finite
from site_selector.mapping.placement import Mapping as SiteMapping
from site_selector.mapping.reasons import Flip, flips, range_text, seconds

# A deviation below this part of the value is not worth a reader's time.
_SPREAD = 0.05
_POLICIES, _MOST_SITES = 8, 12  # as many as a line holds
_MOST_ALIKE = 50  # paths of which the same is known, each with lines of its own
Line = tuple[str, str, str, str, str, str]

SHOW: dict[str, Callable[[float], str]] = {
    "count": "{:g}".format,  # workers
    "seconds": seconds,
    "rate": format_rate,  # bits per second
    "bytes": format_size,
    "bytes_rate": lambda value: f"{format_size(value)}/s",  # of one worker
}
_BESIDE_BYTES = {"setup": "set-up", "first": "hand-shakes", "further": "each further file"}
_TERMS = ("  site", "T_q", "S_c/(N·Γ_c)", "S_t/min(Γ_t,Γ_a)", "T_t")
# An estimate that moved by less than this is the same one measured again.
_MOVED = 0.05


def value_of(estimate: Mapping[str, Any], kind: str) -> str:
    """The value with its spread, where that says something."""
    value, show = estimate["value"], SHOW[kind]
    if value is None:
        return "no bound" if kind in ("rate", "bytes_rate") else show(float("inf"))
    spread = estimate.get("spread") or 0.0
    return show(value) + (f" ± {show(spread)}" if spread > _SPREAD * abs(value) else "")


def age_of(estimate: Mapping[str, Any]) -> str:
    """Its age, empty for what was written down."""
    return seconds(estimate["age_s"]) if estimate.get("age_s") else ""


def citation(estimate: Mapping[str, Any], kind: str) -> str:
    """Value, source, age where it was measured, and how it is known, in one line."""
    source = estimate["source"] + (f" {age_of(estimate)} ago" if age_of(estimate) else "")
    source += f", {estimate['note']}" if estimate.get("note") else ""
    return f"{value_of(estimate, kind)} [{source}]"


def chosen_jobs(mapping: SiteMapping, jobs: Iterable[str] | None = None) -> list[Placement]:
    """The placements of some jobs, of all for None. Raises InputError for an id that the mapping
    does not have."""
    placed = {p.job: p for p in mapping.placements}
    wanted = list(placed) if jobs is None else list(jobs)
    for job in wanted:
        if job not in placed:
            raise InputError(
                f"job {job!r} is not in workflow {mapping.workflow!r}{did_you_mean(job, placed)}"
            )
    return [placed[job] for job in wanted]


def explain_text(mapping: SiteMapping, jobs: Iterable[str] | None = None) -> str:
    """For each job the candidate sites with every term, which Γ bound, sources and ages, and why.

    ``jobs`` limits it to some ids. Raises InputError for an id that the mapping does not have.
    """
    blocks = [summary_text(mapping)] if jobs is None else []
    blocks += [_job_text(placement) for placement in chosen_jobs(mapping, jobs)]
    return "\n\n".join(blocks)


def explain_dict(
    mapping: SiteMapping,
    jobs: Iterable[str] | None = None,
    in_mapping: Mapping[str, tuple[Flip, ...]] | None = None,
) -> list[dict[str, Any]]:
    """The same JSON-ready, each placement with ``would_change``: all single changes that would give
    another site the lesser T_t or, for a job of ``in_mapping`` (see
    :func:`~site_selector.explain.whatif.with_changes`), that would make the whole better with it
    there.

    Raises InputError for an id that the mapping does not have.
    """
    out = []
    for placement in chosen_jobs(mapping, jobs):
        flips_of_job = (in_mapping or {}).get(placement.job)
        if flips_of_job is None:
            here = [a for a in placement.alternatives if a.site == placement.site]
            flips_of_job = tuple(
                flip
                for chosen in here
                for other in placement.alternatives
                if other.site != placement.site and chosen.t_t_s <= other.t_t_s
                for flip in flips(chosen, other)
            )
        out.append(
            placement.as_dict() | {"would_change": [flip.as_dict() for flip in flips_of_job]}
        )
    return out


def summary_text(mapping: SiteMapping) -> str:
    """Workflow, policy, expected makespan, jobs per site, and the portfolio beside it."""
    counts: dict[str, int] = {}
    for placement in mapping.placements:
        counts[placement.site] = counts.get(placement.site, 0) + 1
    shown = [f"{n} at {site}" for site, n in sorted(counts.items(), key=lambda i: -i[1])]
    if len(shown) > _MOST_SITES:
        shown[_MOST_SITES:] = [f"the others at {len(shown) - _MOST_SITES} more sites"]
    where = ", ".join(shown)
    lines = [
        f"{mapping.workflow}: {len(mapping.placements)} jobs, {where}",
        f"expected to end after {forecast_text(mapping)} (policy {mapping.policy}"
        + (f", results to {mapping.output_site})" if mapping.output_site else ")"),
        f"if all estimates were right: {seconds(mapping.makespan_s)}; the policies: "
        + _policies(mapping.portfolio),
    ]
    lines += mapping.queued
    if mapping.beliefs.get("note"):
        lines.append(mapping.beliefs["note"])
    hedge = mapping.withstands
    if hedge is not None:
        lines.insert(
            2,
            f"chosen because estimates may be wrong: another mapping would end after "
            f"{seconds(hedge.makespan_s)} if all were right, but over {hedge.drawn} worlds drawn "
            f"around them this one ends sooner in {hedge.better} and later in {hedge.worse}, "
            f"{100 * abs(hedge.gain):.1f} % {'sooner' if hedge.gain >= 0 else 'later'} on average"
            + ("" if hedge.gain >= 0 else ", but better in the worst of them"),
        )
    return "\n".join(lines)


def forecast_text(mapping: SiteMapping) -> str:
    """``12.5 min, with 90 % probability 11.2 min to 15.0 min``."""
    return seconds(mapping.expected_s) + range_text(mapping.forecast)


def _policies(portfolio: Mapping[str, float]) -> str:
    """The policies that would end soonest, those that would end at the same time together."""
    shown: dict[str, list[str]] = {}
    for name, value in sorted(portfolio.items(), key=lambda item: item[1]):
        shown.setdefault(seconds(value), []).append(name)
    words, left = [], _POLICIES
    for end, names in shown.items():
        words.append(f"{', '.join(names[:left])} {end}")
        left -= len(names)
        if left <= 0:
            break
    more = len(portfolio) - _POLICIES
    return ", ".join(words) + (f", and {more} more" if more > 0 else "")


def show_text(world: World) -> str:
    """The estimates of each site and path, with source and age."""
    return estimates_text(estimates_dict(world))


def estimates_text(estimates: Mapping[str, Any]) -> str:
    """The same from the ``beliefs`` of a saved mapping: one line per value."""
    head = ("what", "value", "source", "age", "how it is known")
    sites = [("site", *head)]
    for name, b in estimates["sites"].items():
        known = [("N", "count", b["n"]), ("T_q", "seconds", b["t_q"])]
        sites += _lines(name, [*known, *([("space", "bytes", b["space"])] if "space" in b else [])])
    paths = [("path", *head)]
    lines_of = {path: tuple(_path_lines(b)) for path, b in estimates["paths"].items()}
    counts = Counter(lines_of.values())
    for path, (first, *rest) in lines_of.items():
        count = counts[first, *rest]
        if count > _MOST_ALIKE:  # of hundreds of sites nearly all are
            counts[first, *rest] = 0
            path += f" and {count - 1:,} more"  # noqa: PLW2901
        if count:
            paths += [(path, *first[1:]), *rest]
    compute = [("transformation@site", *head)]
    for name, b in estimates["compute"].items():
        runtime = ("runtime", "seconds", b)
        compute += _lines(name, [runtime if b["kind"] == "runtime" else ("Γ_c", "bytes_rate", b)])
    for name, b in estimates.get("waits", {}).items():
        compute += _lines(name, [("T_q", "seconds", b)])
    tables = [table(t[0], t[1:]) for t in (sites, paths, compute) if len(t) > 1]
    return "\n\n".join([*tables, estimates["note"]] if estimates.get("note") else tables)


def _path_lines(estimates: Mapping[str, Any]) -> list[Line]:
    known = [("Γ_a", "rate", estimates["gamma_a"]), ("Γ_t", "rate", estimates["gamma_t"])]
    for key, name in _BESIDE_BYTES.items():
        if estimates.get(key, {}).get("value"):
            known.append((name, "seconds", estimates[key]))
    return _lines("", known)


def _lines(name: str, known: Iterable[tuple[str, str, Mapping[str, Any]]]) -> list[Line]:
    out = []
    for what, kind, estimate in known:
        note = estimate.get("note", "")
        if estimate.get("count"):
            number = f"{estimate['count']} measurement{'s' if estimate['count'] > 1 else ''}"
            note = f"{number}; {note}" if note else number
        out.append(
            (name, what, value_of(estimate, kind), estimate["source"], age_of(estimate), note)
        )
        name = ""
    return out


def _job_text(placement: Placement) -> str:
    rows = []
    for option in placement.alternatives:
        mark = "* " if option.site == placement.site else "  "
        terms = (option.t_q_s, option.t_c_s, option.t_t_s)
        queue, compute, total = (seconds(term) for term in terms)
        rows.append([mark + option.site, queue, compute, _network(option), total])
    head = f"{placement.job}  {placement.transformation} -> {placement.site}"
    head += f", {placement.data_configuration}" if placement.data_configuration else ""
    known = [f"  {option.site}: {_sources(option)}" for option in placement.alternatives]
    waits = [f"  waits in the scheduler's queue: {placement.queued}"] if placement.queued else []
    return "\n".join([head, table(_TERMS, rows), *known, *waits, f"  why: {placement.reason}"])


def _network(option: Alternative) -> str:
    if not option.path:
        return seconds(option.t_n_s)
    moved_size = format_size(option.s_t_bytes)
    return f"{seconds(option.t_n_s)} ({moved_size}, {option.gamma} of {option.path})"


def _sources(option: Alternative) -> str:
    known = [("T_q", "t_q", "seconds"), ("N", "n", "count"), ("Γ_c", "gamma_c", "bytes_rate")]
    if option.path:
        known.append(("Γ_a", "gamma_a", "rate"))
        if option.inputs.get("gamma_t", {}).get("value") is not None:
            known.append(("Γ_t", "gamma_t", "rate"))
    known.append(("space", "space", "bytes"))
    parts = []
    for name, key, kind in known:
        if key in option.inputs:
            estimate = option.inputs[key]
            text = f"{name} {citation(estimate, kind)}"
            used = estimate.get("used")
            if used is not None and used < 1:
                text += f", shared to {used:.2g} each"
            if "needed" in estimate:
                text += f", {format_size(estimate['needed'])} needed"
            parts.append(text)
    return "; ".join(parts)


def changes(before: SiteMapping, after: SiteMapping) -> dict[str, Any]:
    """What new measurements changed: jobs that moved, estimates that moved, both makespans.

    ``moved`` lists {job, transformation, before, after}; ``beliefs`` lists {what, before, after}
    with the estimates as they are in the mappings, those first that changed most. A rate and a
    runtime of the same transformation cannot be compared and are left out. JSON-ready.
    """
    old = before.sites
    moved_jobs = [
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
        "makespan_s": {"before": finite(before.expected_s), "after": finite(after.expected_s)},
        "moved": moved_jobs,
        "beliefs": _estimate_changes(before.beliefs, after.beliefs),
    }


def _estimate_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = {(what, kind): estimate for what, kind, estimate in _flat(before)}
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


def _flat(estimates: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(name, kind of quantity, estimate) of every estimate that can be measured."""
    out = []
    for site, b in estimates.get("sites", {}).items():
        out += [(f"N {site}", "count", b["n"]), (f"T_q {site}", "seconds", b["t_q"])]
    for path, b in estimates.get("paths", {}).items():
        out.append((f"Γ_a {path}", "rate", b["gamma_a"]))
        out += [
            (f"{name} {path}", "seconds", b[key]) for key, name in _BESIDE_BYTES.items() if key in b
        ]
    for name, b in estimates.get("compute", {}).items():
        out.append(
            (f"Γ_c {name}", "seconds", b) if b["kind"] == "runtime"
            else (f"Γ_c {name}", "bytes_rate", b)
        )  # fmt: skip
    return out
