"""The report as one self-contained HTML page: no script, no font, no file beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from adon.demo import svg
from adon.demo.facts import RunFacts
from network_provisioner.units import format_rate, format_size

SITE_CLASSES = ("s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8")

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def _table(head: Sequence[str], rows: Iterable[str], numbers: frozenset[int] = frozenset()) -> str:
    cells = "".join(
        f'<th{" class=n" if i in numbers else ""} scope="col">{escape(h)}</th>'
        for i, h in enumerate(head)
    )
    return (
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(cells: Sequence[str], numbers: frozenset[int] = frozenset(), cls: str = "") -> str:
    body = "".join(
        f"<td{' class=n' if i in numbers else ''}>{escape(c)}</td>" for i, c in enumerate(cells)
    )
    return f'<tr class="{cls}">{body}</tr>'


def _seconds(value: float | None) -> str:
    if value is None or value == float("inf"):
        return "∞"
    return f"{value:.2f}"


def _cards(facts: RunFacts) -> str:
    moved = sum(t.bytes for t in facts.transits)
    cards = [
        ("workflow", facts.state),
        ("jobs", f"{facts.jobs} (+{facts.dag_jobs - facts.jobs} of the planner)"),
        ("makespan", f"{facts.makespan_s:.1f} s"),
        ("moved on paths", format_size(moved)),
        ("SNP recall", f"{facts.science.get('recall', 0):.4f}"),
        ("SNP precision", f"{facts.science.get('precision', 0):.4f}"),
        ("reservations left", str(facts.open_reservations)),
        ("flows left", str(facts.flows_left)),
    ]
    return (
        '<ul class="cards">'
        + "".join(
            f"<li><span class=soft>{escape(k)}</span><b>{escape(v)}</b></li>" for k, v in cards
        )
        + "</ul>"
    )


def _key(classes: Mapping[str, str]) -> str:
    return (
        '<p class="key">'
        + "".join(f'<span><i class="{c}"></i>{escape(s)}</span>' for s, c in classes.items())
        + "</p>"
    )


def _transits(facts: RunFacts) -> str:
    numbers = frozenset({3, 4, 5, 6, 7})
    head = (
        "job",
        "from → to",
        "path",
        "asked",
        "granted",
        "bytes",
        "goodput",
        "on switch",
        "result",
    )
    rows = [
        _row(
            (
                t.job,
                f"{t.src} → {t.dst}",
                " → ".join(t.path) or "best effort",
                format_rate(t.requested_bps),
                format_rate(t.granted_bps),
                format_size(t.bytes),
                format_rate(t.goodput_bps),
                format_size(t.switch_bytes),
                f"{t.state}{': ' + t.reason if t.reason else ''}",
            ),
            numbers,
        )
        for t in sorted(facts.transits, key=lambda t: t.requested_at)
    ]
    return _table(head, rows, numbers)


def _why(placement: Mapping[str, Any]) -> str:
    numbers = frozenset({1, 2, 3, 4})
    head = ("site", "T_q", "S_c/(N·Γ_c)", "S_t/min(Γ_t, Γ_a)", "T_t", "Γ bound", "inputs from")
    rows = []
    for a in sorted(placement["alternatives"], key=lambda a: a["site"] != placement["site"]):
        inputs = ", ".join(
            f"{name}: {entry.get('source', '')}" for name, entry in a.get("inputs", {}).items()
        )
        cells = (
            a["site"],
            _seconds(a["t_q_s"]),
            _seconds(a["t_c_s"]),
            _seconds(a["t_n_s"]),
            _seconds(a["t_t_s"]),
            str(a.get("gamma", "")),
            inputs,
        )
        rows.append(_row(cells, numbers, "chosen" if a["site"] == placement["site"] else ""))
    title = f"{placement['job']} · {placement['transformation']} → {placement['site']}"
    return (
        f"<details><summary>{escape(title)}</summary><p>{escape(placement.get('reason', ''))}</p>"
        f"{_table(head, rows, numbers)}</details>"
    )


def _links(facts: RunFacts) -> str:
    parts = []
    for link in facts.links:
        for hop in ((link["a"], link["b"]), (link["b"], link["a"])):
            reserved = svg.reserved_steps(facts.transits, hop)
            measured = svg.measured_rates(facts.samples, hop)
            if link.get("layer") == "lan" or not (reserved or measured):
                continue
            title = (
                f"{hop[0]} → {hop[1]} ({link.get('layer')}, {format_rate(link['capacity_bps'])})"
            )
            chart = svg.link_load(
                hop,
                link["capacity_bps"],
                facts.transits,
                facts.samples,
                facts.started,
                facts.ended,
            )
            parts.append(f"<h3>{escape(title)}</h3><div class=wide>{chart}</div>")
    return "".join(parts) or "<p>No traffic between switches.</p>"


def render(facts: RunFacts) -> str:
    """The whole page. Everything on it comes from ``facts``."""
    placements = facts.mapping["placements"]
    sites = sorted({p["site"] for p in placements} | {b.site for b in facts.bars})
    classes = {site: SITE_CLASSES[i % len(SITE_CLASSES)] for i, site in enumerate(sites)}
    labels = {
        p["job"]: f"{p['transformation'].split(':')[2]} ({p['job']}) at {p['site']}"
        for p in placements
    }
    site_of = {p["job"]: classes[p["site"]] for p in placements}
    changes = "".join(f"<li>{escape(c)}</li>" for c in facts.changes)
    if facts.earlier_measurements:
        learnt = (
            f"<p>{facts.earlier_measurements} measurements of earlier runs were in the archive. "
            f"{'These jobs moved:' if changes else 'They moved no job.'}</p><ul>{changes}</ul>"
            f"<details><summary>all that changed</summary><pre>{escape(facts.learnt_text)}</pre>"
            "</details>"
        )
    else:
        learnt = (
            "<p>The archive was empty: sites were chosen from what the site catalog claims. "
            "The next run will use what this one measured.</p>"
        )
    portfolio = _table(
        ("policy", "predicted makespan, s"),
        [
            _row(
                (name, f"{value:.1f}"),
                frozenset({1}),
                "chosen" if name == facts.mapping["policy"] else "",
            )
            for name, value in sorted(facts.mapping["portfolio"].items(), key=lambda kv: kv[1])
        ],
        frozenset({1}),
    )
    warnings = "".join(f"<li>{escape(w)}</li>" for w in facts.warnings)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>ADON run of {escape(facts.workflow)}</title><style>{STYLE}</style></head><body>
<h1>{escape(facts.workflow)}: where it ran, how its data got there, and why</h1>
<p class="soft">Planned by {escape(facts.planner)}, network {escape(facts.network)}.
{escape(facts.network_note)}</p>
{_cards(facts)}
{f"<h2>Warnings</h2><ul>{warnings}</ul>" if warnings else ""}
<h2>What earlier runs taught</h2>{learnt}
<h2>The workflow</h2>{_key(classes)}
<div class="wide">{svg.dag(facts.edges, labels, site_of)}</div>
<h2>Jobs and transfers over time</h2>
<p class="soft">Dashed: waiting in the queue. Pale: transfers.</p>
<div class="wide">{svg.gantt(facts.bars, classes, facts.started, facts.ended)}</div>
<h2>Paths and bandwidth over time</h2>
<p class="soft">Area: reserved. Line: what the switch counted. Dashed: capacity.</p>
{_links(facts)}
<h2>Transits</h2>{_transits(facts)}
<h2>Why each job runs where it does</h2>
<p>T_t = T_q + S_c/(N·Γ_c) + S_t/min(Γ_t, Γ_a), in seconds; the chosen site is in bold.</p>
{portfolio}
{"".join(_why(p) for p in placements)}
</body></html>
"""
