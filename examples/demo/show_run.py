"""What happened: the figures at the top, transits, links, science, what is left, what failed."""

from __future__ import annotations

from examples.demo import markup
from examples.demo.facts import RunFacts
from examples.demo.loads import LAN, Load, end_of, load_words, loads_of
from examples.demo.words import counted, failure_words
from monitors.workflows.report import Failure
from network_provisioner.base.model import Transit
from network_provisioner.base.units import format_rate, format_size

# Less than this share of a link's capacity at its busiest moment is told in words, not drawn.
_QUIET = 0.05
_MOST_FAILURES = 50
_BAD = ' class="bad"'
_TRANSIT_HEAD = (
    "from → to", "path", "asked at", "held", "asked for", "granted", "moved", "in", "goodput",
    "by switches", "state",
)  # fmt: skip
_TRANSIT_NUMBERS = frozenset(range(2, 10))


def cards(facts: RunFacts) -> str:
    """The run in a row of figures."""
    held = [t for t in facts.transits if t.grant.path]
    found = [
        ("workflow", facts.state),
        (f"jobs (+{facts.dag_jobs - facts.jobs} added)", str(facts.jobs)),
        ("makespan", f"{facts.makespan_s:.1f} s"),
        *([("as Pegasus comes", f"some {facts.without.random_s:.0f} s")] if facts.without else []),
        ("between sites", format_size(sum(t.usage.bytes for t in facts.transits))),
        ("on reserved paths", format_size(sum(t.usage.bytes for t in held))),
    ]
    found += [(f.headline, f.value) for f in facts.science.rows if f.headline]
    found.append(("paths / flows left", f"{facts.open_reservations} / {facts.flows_left}"))
    bad = {"workflow"} if facts.state != "success" else set()
    if facts.open_reservations or facts.flows_left:
        bad.add(found[-1][0])
    items = "".join(
        f"<div><dt>{markup.text(k)}</dt><dd{_BAD if k in bad else ''}>{markup.text(v)}</dd></div>"
        for k, v in found
    )
    return f'<dl class="cards">{items}</dl>'


def transits(facts: RunFacts) -> str:
    """Every request for a path, in the order of asking, with what became of it."""
    if not facts.transits:
        return "<p>No data moved between sites.</p>"
    ordered = sorted(facts.transits, key=lambda t: (t.request.requested_at, t.id))
    rows = [_transit(t, facts.started) for t in ordered]
    return markup.table("Transits", _TRANSIT_HEAD, rows, _TRANSIT_NUMBERS)


def _transit(t: Transit, t0: float) -> str:
    """Its figures in one row; its job and the broker's reason across the next."""
    held = (
        f"{t.grant.installed_at - t0:.1f}–{end_of(t) - t0:.1f} s" if t.grant.installed_at else "–"
    )
    cells = (
        f"{t.request.src} → {t.request.dst}",
        f"{' → '.join(t.grant.path)} ({t.grant.layer.upper()})"
        if t.grant.path
        else "none reserved",
        f"{t.request.requested_at - t0:.1f} s",
        held,
        format_rate(t.request.min_bps),
        format_rate(t.grant.granted_bps) if t.grant.path else "–",
        format_size(t.usage.bytes),
        f"{t.usage.seconds:.1f} s" if t.usage.seconds else "–",
        format_rate(t.usage.goodput_bps) if t.usage.goodput_bps else "–",
        format_size(t.usage.switch_bytes) if t.grant.path else "–",
        t.state.replace("_", " "),
    )
    below = markup.text(f"{t.request.job}: {t.reason}" if t.reason else t.request.job)
    return (
        f'<tbody class="pair">{markup.row([markup.text(c) for c in cells], _TRANSIT_NUMBERS)}'
        f'<tr><td colspan="{len(cells)}"><small>{below}</small></td></tr></tbody>'
    )


def links(facts: RunFacts) -> str:
    """A chart for each direction of a link that carried or reserved something."""
    found = loads_of(facts)
    busy = [load for load in found if _busy(load)]
    wide = [load for load in busy if load.layer != LAN]
    access = [load for load in busy if load.layer == LAN]
    out = "".join(_chart(load, found.index(load), facts) for load in wide)
    if not wide:
        out += (
            "<p>Nothing was reserved on the wide-area links, and next to nothing moved there.</p>"
        )
    if access:
        title = f"Access links of the sites ({counted(len(access), 'direction')} in use)"
        out += markup.details(
            title, "".join(_chart(a, found.index(a), facts) for a in access), opened=not wide
        )
    quiet = [load for load in found if load not in busy and load.counted]
    words = [f"{load.hop[0]} → {load.hop[1]}: {load_words(load, facts.started)}" for load in quiet]
    if words:
        title = f"{counted(len(words), 'quiet direction')}: none reserved, below {_QUIET:.0%} used"
        out += markup.details(title, markup.bullets(words))
    return out


def _busy(load: Load) -> bool:
    peak = load.peak.bps if load.peak else 0.0
    return bool(load.held) or peak > _QUIET * load.capacity_bps


def _chart(load: Load, number: int, facts: RunFacts) -> str:
    title = (
        f"{load.hop[0]} → {load.hop[1]} ({load.layer.upper()}, {format_rate(load.capacity_bps)})"
    )
    drawn = markup.drawing(f"Load of {title}", "chart", number)
    words = load_words(load, facts.started)
    return f"<h3>{markup.text(title)}</h3>{drawn}{markup.note(words[0].upper() + words[1:] + '.')}"


def science(facts: RunFacts) -> str:
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


def left(facts: RunFacts) -> str:
    """What the run left behind, and what it put into the archive."""
    return markup.bullets(
        [
            f"{counted(facts.open_reservations, 'reservation')} still held at the end",
            f"{counted(facts.flows_left, 'flow')} still on the switches at the end",
            f"{counted(facts.status_records, 'status record')} of this run in the archive, "
            "beside goodput and run times",
        ]
    )


def failed(facts: RunFacts) -> str:
    """The section's content; nothing for a success."""
    if facts.state == "success":
        return ""
    told = [words for words in (facts.stopped, facts.reason, *facts.waiting) if words]
    out = markup.bullets(told)
    for index, failure in enumerate(facts.failures[:_MOST_FAILURES]):
        out += markup.details(failure_words(failure), _about(failure), opened=index == 0)
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
