"""The report as one self-contained HTML page: no font, no file beside it, and of scripts only the
dashboard's own, which draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from adon.dashboard.standalone import policy, scripts, style
from adon.report import markup
from adon.report.cost_terms import terms
from adon.report.drawings import figures
from adon.report.link_loads import Load, loads_of
from adon.report.messages import clock_text, counted, term_text
from adon.report.run_facts import NOT_PLANNED, RunFacts
from adon.report.run_sections import Card, Section, cards, links, transits, what_failed
from monitors.workflows.facts.plan import FILE as PLACEMENTS

COLOURS = 8
_STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
_TERMS = """<p>For each site that can run a job: T_t = T_q + S_c/(N·Γ_c) + S_t/min(Γ_t, Γ_a), that
is waiting in the queue, computing, and moving data, in seconds. N is the site's workers, Γ_c the
speed of one of them, Γ_a the bandwidth that is free on the way and Γ_t what TCP can reach on it.
Sites are chosen for the whole workflow, so the chosen site need not have the least T_t of its row;
the reason says why.</p>"""
_SOURCES = """<p>Each value is followed by where it comes from: measured (archive), reported by the
pool (collector), configured (topology, catalog), or a default.</p>"""
_LINKS = (
    "Area: reserved, as high as the rates that were kept. Line: mean rate, {}. Dashed: capacity. "
    "A triangle marks a reservation that is too short to see."
)
_BY_SWITCHES = "by the switch's byte counters"
_BY_TRANSFERS = (
    "by the reports of this run's transfers; between two sites where their path is unknown"
)
_GANTT = (
    "Dashed: waiting in the queue. Bar: running. Pale bar: a job that the planner added. "
    "Thin line below a transfer: its bandwidth was reserved."
)


def render(
    facts: RunFacts,
    first: Sequence[Section] = (),
    last: Sequence[Section] = (),
    more: Sequence[Card] = (),
) -> str:
    """The whole page. It shows ``facts``; callers that know more add sections ``first`` and
    ``last``, and ``more`` cards."""
    classes, loads = site_classes(facts), loads_of(facts)
    title = f"{facts.workflow}: where it ran, how its data got there, and why"
    wrong = what_failed(facts)
    sections = [Section("failed", "What went wrong", wrong)] if wrong else []
    sections += first
    if facts.was_planned or facts.mapping["placements"]:
        sections += _of_a_plan(facts, loads, classes)
    sections += last
    contents = "".join(f'<a href="#{s.anchor}">{markup.text(s.title)}</a>' for s in sections)
    body = "".join(markup.section(s.anchor, s.title, s.html) for s in sections)
    warnings = markup.bullets(facts.warnings, "warnings")
    if warnings:
        warnings = markup.section("warnings", "Warnings", warnings)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy()}; img-src data:">
<meta name="color-scheme" content="light dark">
<title>ADON run of {markup.text(facts.workflow)}</title>
<style>{style()}{_STYLE}</style></head><body>
<header><h1>{markup.text(title)}</h1>{markup.note(_made(facts))}</header>
<main>{cards(facts, more)}<nav aria-label="Contents">{contents}</nav>
<noscript>{markup.note("The drawings need JavaScript.")}</noscript>
{warnings}{body}</main>{scripts(figures(facts, loads, classes))}</body></html>
"""


def _of_a_plan(facts: RunFacts, loads: Sequence[Load], classes: dict[str, str]) -> list[Section]:
    """The sections of a run that came as far as choosing sites."""
    placements = facts.mapping["placements"]
    why = markup.note(f"ADON did not choose its sites: there is no {PLACEMENTS}.")
    if placements:
        sourced = any("inputs" in other for other in placements[0]["alternatives"])
        why = _TERMS + (_SOURCES if sourced else "") + _portfolio(facts) + terms(placements)
    return [
        Section("workflow", "The workflow", _workflow(facts, classes)),
        Section("time", "Jobs and transfers over time", _time(facts, classes)),
        Section(
            "links",
            "Paths and bandwidth over time",
            markup.note(_LINKS.format(_BY_SWITCHES if facts.samples else _BY_TRANSFERS))
            + links(facts, loads),
        ),
        Section("transits", "Transits: who asked, what was given", transits(facts)),
        Section("why", "Why each job runs where it does", why),
    ]


def site_classes(facts: RunFacts) -> dict[str, str]:
    """The CSS class of each site: the same colour in all drawings."""
    sites = {p["site"] for p in facts.mapping["placements"]} | {b.site for b in facts.bars}
    sites |= {job.site for job in facts.dag if job.shown}
    sites |= set(facts.mapping.get("beliefs", {}).get("sites", {}))
    return {site: f"s{index % COLOURS + 1}" for index, site in enumerate(sorted(sites - {""}))}


def _made(facts: RunFacts) -> str:
    planner = {
        "embedded": "Planned by ADON's embedded planner, for machines without Pegasus.",
        NOT_PLANNED: "It was not planned.",
        "": "Planned without Pegasus.",
    }.get(facts.planner, f"Planned by {facts.planner}.")
    switches = {"": "", "openflow": "Network: real switches under OpenFlow."}
    network = switches.get(facts.network, f"Network: {facts.network} network.")
    parts = (f"Started {clock_text(facts.started)}.", planner, network, facts.network_note)
    return " ".join(filter(None, parts))


def _workflow(facts: RunFacts, classes: dict[str, str]) -> str:
    counts = Counter(job.site for job in facts.dag if job.shown)
    counts |= Counter(p["site"] for p in facts.mapping["placements"])
    key = markup.key(
        {f"{site}: {counted(counts[site], 'job')}": cls for site, cls in classes.items()}
    )
    caption = "From top to bottom: each job needs the results of those above that it is joined to."
    return markup.note(caption) + key + markup.drawing("The workflow's jobs", "dag")


def _time(facts: RunFacts, classes: dict[str, str]) -> str:
    seen = {b.site for b in facts.bars}
    key = markup.key({site: cls for site, cls in classes.items() if site in seen})
    return markup.note(_GANTT) + key + markup.drawing("Jobs and transfers over time", "gantt")


def _portfolio(facts: RunFacts) -> str:
    """What each policy would reach under the same estimates, beside what the run took."""
    mapping = facts.mapping
    chosen = mapping["policy"].removesuffix("+search")
    numbers = frozenset({1})

    def order(item: tuple[str, float | None]) -> tuple[bool, float, str]:
        return item[1] is None, item[1] or 0.0, item[0]

    rows = [
        markup.row(
            (markup.text(name), markup.text(term_text(value))),
            numbers,
            "chosen" if name == chosen else "",
        )
        for name, value in sorted(mapping["portfolio"].items(), key=order)
    ]
    low_high = [term_text(end) for end in facts.expected_range_s or ()]
    between = f", with 90 % probability after {' to '.join(low_high)}" if low_high else ""
    takes = "has run for" if facts.state == "running" else "took"
    caption = (
        f"Policy {mapping['policy']} was expected to end after {term_text(facts.expected_s)}"
        f"{between}; the run {takes} {facts.makespan_s:.1f} s."
    )
    if not rows:
        return f"<p>{markup.text(caption)}</p>"
    table = markup.table("Policies", ("policy", "expected makespan"), rows, numbers)
    return f"<p>{markup.text(caption)}</p>" + markup.details("All policies compared", table)
