"""Workflows and their analysis as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adon.commands.output import duration
from monitors.workflows.stuck import for_people
from network_provisioner.errors import printable
from network_provisioner.units import format_rate, format_size
from site_selector.tables import table

Row = Mapping[str, Any]

_WIDEST = 40  # letters of a name in a list
_COLUMNS = ("unready", "ready", "pre", "in_queue", "post", "done", "fail")
_HEAD = ("UNREADY>", "READY>", "PRE>", "IN_Q>", "POST>", "DONE>", "FAIL>", "%DONE>", "STATE")


def list_text(found: Sequence[Row], now: float) -> str:
    """A line for each workflow."""
    if not found:
        return "no workflows"
    rows = [
        (
            _state(one),
            f"{one['totals']['percent_done']:.1f}",
            f"{one['totals']['done']}/{one['totals']['total']}",
            str(one["totals"]["fail"] or "-"),
            _short(one["user"]) or "-",
            _short(one["name"]),
            _ago(one["at"], now),
            printable(one["id"]),
        )
        for one in found
    ]
    head = ("state", "%done>", "done>", "failed>", "user", "name", "changed>", "id")
    return "\n".join([table(head, rows), *_stuck(found)])


def _short(name: str) -> str:
    """A name as it fits into a column: one that is very long would move all others' off a screen.
    The id says which workflow it is."""
    shown = printable(name)
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"


def status_text(found: Row, inner: Sequence[Row], now: float) -> str:
    """The eight fields of Figure 16 of a workflow, of those inside it and of all; its changes."""
    lines = [_counts(one["status"], _state(one), one["name"]) for one in (found, *inner)]
    if inner:
        total = found["totals"]
        # What is inside those inside is counted too: only these are known of the whole.
        lines.append(
            ("",) * 5
            + (str(total["done"]), str(total["fail"]), f"{total['percent_done']:.2f}",
               _state(found), f"all {total['total']} jobs")
        )  # fmt: skip
    said = f"{_ago(found['at'], now)} ago by {printable(found['source']) or 'nobody'}"
    blocks = [
        f"{printable(found['name'])} of {printable(found['user']) or 'an unknown user'}"
        f" ({printable(found['id'])}), {said}",
        table((*_HEAD, "WORKFLOW"), lines),
        *_stuck([found, *inner]),
    ]
    if found["history"]:
        changes = [
            (f"-{for_people(max(0.0, now - one['at']))}", *_counts(one, one["state"], ""))[:-1]
            for one in found["history"]
        ]
        blocks.append(table(("WHEN>", *_HEAD), changes))
    return "\n\n".join(blocks)


def analysis_text(workflow: Row, found: Row) -> str:
    """Everything that is known of how a workflow went."""
    blocks = ["\n".join(_summary(workflow, found))]
    if found["runtimes"]:
        blocks.append("Run times\n" + _runtimes(found["runtimes"]))
    if found["waits"]:
        blocks.append("Waits for a worker\n" + _waits(found["waits"]))
    if found["transfers"]:
        blocks.append("Transfers\n" + _transfers(found["transfers"]))
    for failed in found["failures"]:
        blocks.append("\n".join(_failure(failed)))
    return "\n\n".join(blocks)


def _summary(workflow: Row, found: Row) -> Iterable[str]:
    total = workflow["totals"]
    inside = len(found["workflows"]) - 1
    yield (
        f"{printable(workflow['name'])} of {printable(workflow['user']) or 'an unknown user'}:"
        f" {_state(workflow)}, {total['done']} of {total['total']} jobs done,"
        f" {total['fail']} failed"
    )
    if inside:
        yield f"with {inside} workflow{'s' if inside > 1 else ''} inside it"
    if workflow["stuck"]:
        yield f"stuck: {printable(workflow['stuck'])}"
    if workflow.get("reason"):
        yield f"why: {printable(workflow['reason'])}"
    yield f"makespan {duration(found['makespan_s'])}, run times together " + (
        f"{duration(found['cumulative_s'])}, lost in failures {duration(found['lost_s'])}"
    )
    outcomes = ", ".join(f"{count} {word}" for word, count in found["outcomes"].items())
    ended = f"{found['attempts']} attempts ({outcomes or 'none has ended'})"
    yield f"{ended}, {found['retries']} retries"


def _runtimes(rows: Sequence[Row]) -> str:
    head = ("transformation", "site", "count>", "failed>", "min>", "mean>", "median>", "max>",
            "together>", "cpu>")  # fmt: skip
    return table(
        head,
        [
            (
                _what(r),
                printable(r["site"]),
                str(r["count"]),
                str(r["failed"] or "-"),
                *_spread(r),
                duration(r["total_s"]) if r["count"] else "-",
                "-" if r["cpu_s"] is None else duration(r["cpu_s"]),
            )
            for r in rows
        ],
    )


def _what(row: Row) -> str:
    """Jobs of one transformation that the planner added are for different things."""
    name, kind = printable(row["transformation"]), printable(row["kind"])
    return name if kind in ("compute", name, "") else f"{name} ({kind})"


def _waits(rows: Sequence[Row]) -> str:
    head = ("site", "count>", "min>", "mean>", "median>", "max>")
    return table(head, [(printable(r["site"]), str(r["count"]), *_spread(r)) for r in rows])


def _transfers(rows: Sequence[Row]) -> str:
    head = ("from", "to", "with", "count>", "failed>", "retries>", "bytes>", "goodput>", "median>",
            "path")  # fmt: skip
    return table(
        head,
        [
            (
                printable(r["src"]),
                printable(r["dst"]),
                printable(r["tool"]),
                str(r["count"]),
                str(r["failed"] or "-"),
                str(r["retries"] or "-"),
                format_size(r["bytes"]) + (" and more" if r["unsized"] else ""),
                _rate(r["goodput_bps"]),
                _rate(r["median_bps"]),
                _paths(r),
            )
            for r in rows
        ],
    )


def _paths(row: Row) -> str:
    ways = [f"{'-'.join(p['path'])} ({p['count']})" for p in row["paths"]]
    ways += [f"best effort ({row['best_effort']})"] if row["best_effort"] else []
    return printable(", ".join(ways)) or "-"


def _failure(failed: Row) -> Iterable[str]:
    how = "removed" if failed["outcome"] == "removed" else f"exit code {failed['exitcode']}"
    if failed["exitcode"] is None and failed["outcome"] != "removed":
        how = failed["outcome"]
    where = f" at {printable(failed['site'])}" if failed["site"] else ""
    host = f" on {printable(failed['host'])}" if failed["host"] else ""
    tries = f", {failed['attempts']} attempts" if failed["attempts"] > 1 else ""
    word = "Failed, then done" if failed["retried"] else "Failed"
    why = printable(failed["reason"]) or how
    yield f"{word}: {printable(failed['job'])}{where}{host}: {why}{tries}"
    if failed["output"]:
        yield f"  output: {printable(failed['output'])}"
    for line in failed["stderr"].splitlines():
        yield f"  | {printable(line)}"


def _counts(status: Row, state: str, name: str) -> tuple[str, ...]:
    numbers = (str(status[column]) for column in _COLUMNS)
    return (*numbers, f"{status['percent_done']:.2f}", state, printable(name))


def _spread(row: Row) -> tuple[str, ...]:
    if not row["count"]:
        return ("-",) * 4
    return tuple(duration(row[name]) for name in ("min_s", "mean_s", "median_s", "max_s"))


def _state(one: Row) -> str:
    return "stuck" if one["stuck"] else str(one["state"])


def _stuck(found: Iterable[Row]) -> list[str]:
    return [f"{printable(one['name'])} is stuck: {printable(one['stuck'])}" for one in found
            if one["stuck"]]  # fmt: skip


def _ago(at: float, now: float) -> str:
    return for_people(max(0.0, now - at)) if at else "-"


def _rate(value: float | None) -> str:
    return "-" if value is None else format_rate(value)
