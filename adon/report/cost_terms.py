"""Why each job runs where it does: every term at every site, with what it was computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adon.report import markup
from adon.report.messages import counted, quantity, short_name, source_text, term_text
from network_provisioner.base.units import format_size

_NUMBERS = frozenset({1, 2, 3, 4})
_HEAD = ("site", "T_q", "S_c/(N·Γ_c)", "S_t/min(Γ_t, Γ_a)", "T_t")
_MANY_NUMBERS = frozenset({2, 3, 4, 5})
_MANY_HEAD = (*_HEAD, "S_t over", "Γ that bounds")
_INPUTS = {
    "t_q": ("T_q", "seconds"),
    "n": ("N", "count"),
    "gamma_c": ("Γ_c", "bytes_rate"),
    "gamma_a": ("Γ_a", "rate"),
    "gamma_t": ("Γ_t", "rate"),
}
# With more jobs than this the inputs are listed once per kind of job, not in every cell.
DETAILED = 100
_MOST_ROWS = 5000  # of all tables together


def terms(placements: Sequence[Mapping[str, Any]]) -> str:
    """Something to unfold for each kind of job, with one table per job in it."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for placement in placements:
        kinds.setdefault(placement["transformation"], []).append(placement)
    detailed = len(placements) <= DETAILED
    room, shown = _MOST_ROWS, dict[str, int]()
    for left, (name, jobs) in zip(
        range(len(kinds), 0, -1), sorted(kinds.items(), key=lambda kind: len(kind[1])), strict=True
    ):
        each = max(len(job["alternatives"]) for job in jobs) + 1
        shown[name] = min(len(jobs), max(1, room // left // each))
        room -= shown[name] * each
    return "".join(
        _kind(name, jobs, shown[name], detailed, opened=index == 0)
        for index, (name, jobs) in enumerate(kinds.items())
    )


def _kind(
    name: str, jobs: Sequence[Mapping[str, Any]], shown: int, detailed: bool, opened: bool
) -> str:
    """One kind of job; ``shown`` of them are."""
    sites: dict[str, int] = {}
    for job in jobs:
        sites[job["site"]] = sites.get(job["site"], 0) + 1
    where = ", ".join(f"{n} at {site}" for site, n in sorted(sites.items()))
    title = f"{short_name(name)}: {counted(len(jobs), 'job')}, {where}"
    if detailed:
        return markup.details(title, "".join(map(_job, jobs)), opened)
    terms_table = markup.table(
        f"Terms of {name}", ("job", *_MANY_HEAD), map(_short_job, jobs[:shown]), _MANY_NUMBERS
    )
    if shown < len(jobs):
        more = counted(len(jobs) - shown, "more job")
        terms_table += markup.note(f"And {more}, see report.json.")
    return markup.details(title, terms_table + _inputs(name, jobs))


def _job(placement: Mapping[str, Any]) -> str:
    """One job's table, with source and age of each input below its term."""
    rows = []
    for a in placement["alternatives"]:
        inputs = a.get("inputs", {})
        cells = [
            markup.text(a["site"]),
            _cell(a["t_q_s"], [_sourced(inputs.get("t_q"))]),
            _cell(a["t_c_s"], [_moved("S_c", a.get("s_c_bytes")), *_of(("n", "gamma_c"), inputs)]),
            _cell(
                a["t_n_s"],
                [_way(a), *_of(("gamma_a", "gamma_t"), inputs, a.get("gamma", ""))],
            ),
            _cell(a["t_t_s"], []),
        ]
        chosen = a["site"] == placement["site"]
        if chosen:
            cells[0] = f'{cells[0]} <span class="tag">chosen</span>'
        rows.append(markup.row(cells, _NUMBERS, "chosen" if chosen else ""))
    title = f"{placement['job']} → {placement['site']}"
    table = markup.table(f"Terms of {placement['job']}", _HEAD, rows, _NUMBERS)
    reason = placement.get("reason", "")
    return f"<h4>{markup.text(title)}</h4>{markup.note(reason) if reason else ''}{table}"


def _cell(value: float | None, below: Sequence[str]) -> str:
    lines = "".join(f"<small>{line}</small>" for line in below if line)
    return f"{markup.text(term_text(value))}{lines}"


def _input(name: str, inputs: Mapping[str, Any]) -> str:
    symbol, kind = _INPUTS[name]
    estimate = inputs.get(name)
    if estimate is None:
        return ""
    text = f"{symbol} {quantity(kind, estimate['value'])}"
    used = estimate.get("used")
    if used is not None:
        text += f", of which {used:.2g} for this job"
    return markup.text(f"{text} [{source_text(estimate)}]")


def _sourced(estimate: Mapping[str, Any] | None) -> str:
    return "" if estimate is None else markup.text(f"[{source_text(estimate)}]")


def _of(names: Sequence[str], inputs: Mapping[str, Any], bound: str = "") -> list[str]:
    out = []
    for name in names:
        text = _input(name, inputs)
        out.append(f"{text} ← bounds" if text and _INPUTS[name][0] == bound else text)
    return out


def _moved(symbol: str, n_bytes: float | None) -> str:
    return "" if n_bytes is None else markup.text(f"{symbol} {format_size(n_bytes)}")


def _way(alternative: Mapping[str, Any]) -> str:
    if not alternative.get("path"):
        return "nothing to move" if "path" in alternative else ""
    path = alternative["path"].replace(">", " → ")
    return markup.text(f"S_t {format_size(alternative.get('s_t_bytes', 0.0))}, slowest by {path}")


def _short_job(placement: Mapping[str, Any]) -> str:
    """One job of very many: its terms only, in a ``<tbody>`` of its own."""
    rows = []
    for index, a in enumerate(placement["alternatives"]):
        cells = [
            placement["job"] if index == 0 else "",
            a["site"],
            *(term_text(a[term]) for term in ("t_q_s", "t_c_s", "t_n_s", "t_t_s")),
        ]
        move_cells = [_way(a).removeprefix("S_t "), markup.text(a.get("gamma", ""))]
        cls = "chosen" if a["site"] == placement["site"] else ""
        rows.append(markup.row([*map(markup.text, cells), *move_cells], _MANY_NUMBERS, cls))
    reason = markup.text(placement.get("reason", ""))
    width = 1 + len(_MANY_HEAD)
    rows.append(f'<tr><td colspan="{width}"><small>{reason}</small></td></tr>')
    return f'<tbody class="pair">{"".join(rows)}</tbody>'


def _inputs(name: str, jobs: Sequence[Mapping[str, Any]]) -> str:
    """Each input that the jobs of one kind were computed from, once."""
    uses: dict[tuple[str, str, str, str], int] = {}
    for placement in jobs:
        for a in placement["alternatives"]:
            for key, estimate in a.get("inputs", {}).items():
                symbol, kind = _INPUTS[key]
                where = a.get("path", "").replace(">", " → ") if kind == "rate" else a["site"]
                entry = (symbol, where, quantity(kind, estimate["value"]), source_text(estimate))
                uses[entry] = uses.get(entry, 0) + 1
    rows = [
        markup.row([*map(markup.text, entry), str(times)], frozenset({2, 4}))
        for entry, times in sorted(uses.items())
    ]
    head = ("input", "of", "value", "source and age", "used times")
    return markup.table(f"Inputs of {name}", head, rows, frozenset({2, 4})) if rows else ""
