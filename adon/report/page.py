"""The report as one self-contained HTML page: no font, no file beside it, and of scripts only the
dashboard's own, which draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adon.dashboard.standalone import policy, scripts, style
from adon.report import markup
from adon.report.cost_terms import terms
from adon.report.drawings import figures, measured_paths
from adon.report.link_loads import LAN, Load, end_of, load_sentence, loads_of
from adon.report.messages import clock_text, counted, failure_text, term_text
from adon.report.run_facts import NOT_PLANNED, RunFacts
from monitors.workflows.facts.plan import FILE as PLACEMENTS
from monitors.workflows.report import Failure
from network_provisioner.base.model import Transit
from network_provisioner.base.units import format_rate, format_size

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
# Less than this share of a link's capacity at its busiest moment is written, not drawn.
_QUIET = 0.05
_MOST_FAILURES = 50
_MOST_TRANSITS = 300
_FEW_PATHS = 4
_BAD = ' class="bad"'
_TRANSIT_HEAD = (
    "from → to", "path", "asked at", "held", "asked for", "granted", "moved", "in", "goodput",
    "by switches", "state",
)  # fmt: skip
_TRANSIT_NUMBERS = frozenset(range(2, 10))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; ``html`` follows its title."""

    anchor: str
    title: str
    html: str


@dataclass(frozen=True, slots=True)
class Card:
    """One of the figures at the top; a ``bad`` one is highlighted."""

    name: str
    value: str
    bad: bool = False


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
    wrong = _what_failed(facts)
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
<main>{_cards(facts, more)}<nav aria-label="Contents">{contents}</nav>
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
            + _links(facts, loads),
        ),
        Section("transits", "Transits: who asked, what was given", _transits(facts)),
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


def _cards(facts: RunFacts, more: Sequence[Card]) -> str:
    """The run in a row of figures."""
    held = [t for t in facts.transits if t.grant.path]
    shown = [
        Card("workflow", facts.state, facts.went_wrong),
        Card(f"jobs (+{facts.dag_jobs - facts.jobs} added)", f"{facts.jobs:,}"),
        Card("makespan" if facts.state != "running" else "so far", f"{facts.makespan_s:.1f} s"),
        Card("between sites", format_size(sum(t.usage.bytes for t in facts.transits))),
        Card("on reserved paths", format_size(sum(t.usage.bytes for t in held))),
        *more,
    ]
    items = "".join(
        f"<div><dt>{markup.text(card.name)}</dt>"
        f"<dd{_BAD if card.bad else ''}>{markup.text(card.value)}</dd></div>"
        for card in shown
    )
    return f'<dl class="cards">{items}</dl>'


def _transits(facts: RunFacts) -> str:
    """Every request for a path, in the order of asking, with its result; of very many those
    that moved most."""
    if not facts.transits:
        return "<p>No data moved between sites.</p>"
    most = sorted(facts.transits, key=lambda t: -t.usage.bytes)[:_MOST_TRANSITS]
    ordered = sorted(most, key=lambda t: (t.request.requested_at or t.grant.released_at, t.id))
    rows = [_transit(t, facts.started) for t in ordered]
    table = markup.table("Transits", _TRANSIT_HEAD, rows, _TRANSIT_NUMBERS)
    if len(facts.transits) > len(most):
        table += markup.note(
            f"These moved most of {len(facts.transits):,} transits; report.json has all."
        )
    return table


def _transit(t: Transit, t0: float) -> str:
    """Its figures in one row; its job and the broker's reason across the next."""
    held = (
        f"{t.grant.installed_at - t0:.1f}–{end_of(t) - t0:.1f} s" if t.grant.installed_at else "–"
    )
    cells = (
        f"{t.request.src} → {t.request.dst}",
        " → ".join(t.grant.path) + (f" ({t.grant.layer.upper()})" if t.grant.layer else "")
        or "none reserved",
        f"{t.request.requested_at - t0:.1f} s" if t.request.requested_at else "–",
        held,
        format_rate(t.request.min_bps) if t.request.min_bps else "–",
        format_rate(t.grant.granted_bps) if t.grant.granted_bps else "–",
        format_size(t.usage.bytes),
        f"{t.usage.seconds:.1f} s" if t.usage.seconds else "–",
        format_rate(t.usage.goodput_bps) if t.usage.goodput_bps else "–",
        format_size(t.usage.switch_bytes) if t.usage.switch_bytes else "–",
        t.state.replace("_", " "),
    )
    below = markup.text(f"{t.request.job}: {t.reason}" if t.reason else t.request.job)
    return (
        f'<tbody class="pair">{markup.row([markup.text(c) for c in cells], _TRANSIT_NUMBERS)}'
        f'<tr><td colspan="{len(cells)}"><small>{below}</small></td></tr></tbody>'
    )


def _links(facts: RunFacts, loads: Sequence[Load]) -> str:
    """A chart for each direction of a link that carried or reserved something, and for what was
    measured of the paths that the run used."""
    busy = [number for number, load in enumerate(loads) if _busy(load)]
    wide = [number for number in busy if loads[number].layer != LAN]
    access = [number for number in busy if loads[number].layer == LAN]
    out = "".join(_chart(loads[number], number, facts) for number in wide)
    if not wide:
        out += (
            "<p>Nothing was reserved on the wide-area links, and hardly anything moved there.</p>"
        )
    if access:
        title = f"Access links of the sites ({counted(len(access), 'direction')} in use)"
        charts = "".join(_chart(loads[number], number, facts) for number in access)
        out += markup.details(title, charts, opened=not wide)
    quiet = [load for load in loads if (load.counted or load.peak) and not _busy(load)]
    sentences = [
        f"{load.hop[0]} → {load.hop[1]}: {load_sentence(load, facts.started)}" for load in quiet
    ]
    if sentences:
        title = (
            f"{counted(len(sentences), 'quiet direction')}: none reserved, below {_QUIET:.0%} used"
        )
        out += markup.details(title, markup.bullets(sentences))
    paths = measured_paths(facts)
    if paths:
        charts = "".join(
            f"<h3>{markup.text(title)}</h3>{markup.drawing(title, 'chart', number)}"
            for number, (subject, metric, _, _) in enumerate(paths, len(loads))
            for title in (f"{metric.replace('_', ' ')} {subject.replace('>', ' → ')}",)
        )
        title = (
            f"What was measured of its paths meanwhile ({counted(len(paths), 'series', 'series')})"
        )
        out += markup.details(title, charts, opened=len(paths) <= _FEW_PATHS)
    return out


def _busy(load: Load) -> bool:
    peak = load.peak.bps if load.peak else 0.0
    return bool(load.held) or peak > _QUIET * load.capacity_bps


def _chart(load: Load, number: int, facts: RunFacts) -> str:
    title = f"{load.hop[0]} → {load.hop[1]}"
    if load.capacity_bps:
        title += f" ({load.layer.upper()}, {format_rate(load.capacity_bps)})"
    drawn = markup.drawing(f"Load of {title}", "chart", number)
    sentence = load_sentence(load, facts.started)
    caption = markup.note(f"{sentence[0].upper()}{sentence[1:]}.")
    return f"<h3>{markup.text(title)}</h3>{drawn}{caption}"


def _what_failed(facts: RunFacts) -> str:
    """The section's content; nothing where nothing failed and no job waits without a match."""
    if not (facts.went_wrong or facts.failures or facts.waiting):
        return ""
    out = markup.bullets(
        sentence for sentence in (facts.stopped, facts.reason, *facts.waiting) if sentence
    )
    for index, failure in enumerate(facts.failures[:_MOST_FAILURES]):
        out += markup.details(failure_text(failure), _about(failure), opened=index == 0)
    if len(facts.failures) > _MOST_FAILURES:
        more = counted(len(facts.failures) - _MOST_FAILURES, "more failed job")
        out += markup.note(f"And {more}, see report.json.")
    if facts.submit_dir:
        out += markup.note(f"All files of the run are in {facts.submit_dir}")
    return out or markup.note(f"The workflow ended as {facts.state}.")


def _about(failure: Failure) -> str:
    out = markup.note(f"HTCondor: {failure.reason}") if failure.reason else ""
    if failure.tail:
        out += markup.scroller(f"Last words of {failure.job}", markup.verbatim(failure.tail))
    return out + markup.bullets(str(path) for path in failure.files)
