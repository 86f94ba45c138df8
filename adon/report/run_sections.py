"""What happened: the figures at the top, transits, links, what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adon.report import markup
from adon.report.drawings import measured_paths
from adon.report.link_loads import LAN, Load, end_of, load_sentence
from adon.report.messages import counted, failure_text
from adon.report.run_facts import RunFacts
from monitors.workflows.report import Failure
from network_provisioner.base.model import Transit
from network_provisioner.base.units import format_rate, format_size

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


def cards(facts: RunFacts, more: Sequence[Card] = ()) -> str:
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


def transits(facts: RunFacts) -> str:
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


def links(facts: RunFacts, loads: Sequence[Load]) -> str:
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


def what_failed(facts: RunFacts) -> str:
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
