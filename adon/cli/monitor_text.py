"""Workflows and their analysis as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adon.cli.output import columns, duration, fits, fitted, wrapped
from monitors.workflows.logs.kickstart import NOT_STARTED
from monitors.workflows.status import for_people
from network_provisioner.base.errors import printable
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import format_rate, format_size
from site_selector.explain.tables import table

Row = Mapping[str, Any]

_WIDEST, _NARROWEST = 40, 8  # letters of a name in a list
_SHORT_ID = 8  # letters of a UUID, where there is no room for all
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HOURS, _MANY_HOURS = 2, 100
_DAG_LOG = "the event log of its DAG"
_NO_REASON = "HTCondor gives no reason"
_NAMED_TASKS = 5
_COLUMNS = ("unready", "ready", "pre", "in_queue", "post", "done", "fail")
_HEAD = ("UNREADY>", "READY>", "PRE>", "IN_Q>", "POST>", "DONE>", "FAIL>", "%DONE>", "STATE")


def list_text(found: Sequence[Row], now: float) -> str:
    """A line for each workflow."""
    if not found:
        return "no workflows"
    shown = _list(found, now, _WIDEST, [printable(one["id"]) for one in found])
    if not fits(shown):
        ids = _beginnings([printable(one["id"]) for one in found])
        shown = _list(found, now, _WIDEST, ids)
        excess = max(map(len, shown.splitlines())) - columns()
        names = max(len(_short(one["name"])) for one in found)
        if 0 < excess <= names - _NARROWEST:  # else nothing is gained by it
            shown = _list(found, now, names - excess, ids)
    return "\n".join([shown, *_stuck(found)])


def _list(found: Sequence[Row], now: float, widest: int, ids: Sequence[str]) -> str:
    rows = [
        (
            _state(one),
            f"{one['totals']['percent_done']:.1f}",
            f"{one['totals']['done']}/{one['totals']['total']}",
            str(one["totals"]["fail"] or "-"),
            _short(one["user"], widest) or "-",
            _short(one["name"], widest),
            _ago(one["at"], now),
            key,
        )
        for one, key in zip(found, ids, strict=True)
    ]
    return table(("state", "%done>", "done>", "failed>", "user", "name", "changed>", "id"), rows)


def _beginnings(ids: Sequence[str]) -> list[str]:
    """UUIDs as short as they may be typed: their beginnings, as long as they tell them apart."""
    for length in range(_SHORT_ID, 36, 4):
        short = [one[:length] if _UUID.fullmatch(one) else one for one in ids]
        if len(set(short)) == len(set(ids)):
            return short
    return list(ids)


def _short(name: str, widest: int = _WIDEST) -> str:
    """A name as it fits into a column: one that is very long would move all others' off a screen.
    The id says which workflow it is."""
    shown = printable(name)
    return shown if len(shown) <= widest else f"{shown[: widest - 1]}…"


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
        wrapped(
            f"{printable(found['name'])} of {printable(found['user']) or 'an unknown user'}"
            f" ({printable(found['id'])}), {said}"
        ),
        fitted((*_HEAD, "WORKFLOW"), lines, [line[-1] for line in lines], [len(_HEAD)]),
        *_stuck([found, *inner]),
        *_ends([found, *inner]),
        *_held([found, *inner], now),
    ]
    if found["history"]:
        changes = [
            (f"-{for_people(max(0.0, now - one['at']))}", *_counts(one, one["state"], ""))[:-1]
            for one in found["history"]
        ]
        blocks.append(table(("WHEN>", *_HEAD), changes))
    return "\n\n".join(blocks)


def analysis_text(workflow: Row, found: Row, inner: Sequence[Row] = (), now: float = 0.0) -> str:
    """Everything that is known of how a workflow went, with those inside it."""
    names = {one["id"]: one["name"] for one in inner}
    head = [*map(wrapped, _summary(workflow, found))]
    if workflow.get("reason"):
        head.append(f"why: {printable(workflow['reason'])}")
    blocks = ["\n".join(head), *_ends(inner), *_held([workflow, *inner], now)]
    if found["runtimes"]:
        blocks.append("Run times\n" + _runtimes(found["runtimes"]))
    if found["waits"]:
        blocks.append("Waits for a worker\n" + _waits(found["waits"]))
    if found["transfers"]:
        blocks.append("Transfers\n" + _transfers(found["transfers"]))
    for failed in found["failures"]:
        inside = "" if failed["workflow"] == workflow["id"] else names.get(failed["workflow"], "")
        blocks.append("\n".join(_failure(failed, inside)))
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
    lost, slots = duration(found["lost_s"]), duration(found["lost_slot_s"])
    yield f"makespan {duration(found['makespan_s'])}, run times together " + (
        f"{duration(found['cumulative_s'])}, lost in failures {lost}"
        + (f" ({slots} of slots)" if slots != lost else "")
    )
    outcomes = ", ".join(f"{count} {word}" for word, count in found["outcomes"].items())
    attempts, retries = found["attempts"], found["retries"]
    yield (
        f"{attempts} attempt{'' if attempts == 1 else 's'} ({outcomes or _why_none(workflow)}),"
        f" {retries} {'retry' if retries == 1 else 'retries'}"
    )


def _why_none(workflow: Row) -> str:
    total = workflow["totals"]
    if workflow["state"] in ("planned", "running"):
        return "none has ended"
    if not total["done"] + total["fail"]:
        return "no job was submitted"
    return f"no event of its jobs was found, neither in {_DAG_LOG} nor in what DAGMan says"


def _runtimes(rows: Sequence[Row]) -> str:
    head = ("transformation", "site", "count>", "failed>", "min>", "mean>", "median>", "max>",
            "together>", "cpu>")  # fmt: skip
    cells = [
        (
            _what(r),
            _or_none(r["site"]),
            str(r["count"]),
            str(r["failed"] or "-"),
            *_spread(r),
            _time(r["total_s"]) if r["count"] else "-",
            "-" if r["cpu_s"] is None else _time(r["cpu_s"]),
        )
        for r in rows
    ]
    return fitted(head, cells, [_label(*cell[:2]) for cell in cells], (0, 1))


def _label(what: str, site: str) -> str:
    return what if site == "-" else f"{what} at {site}"


def _what(row: Row) -> str:
    """Jobs of one transformation that the planner added are for different things."""
    name, kind = printable(row["transformation"]), printable(row["kind"])
    return name if kind in ("compute", name, "") else f"{name} ({kind})"


def _waits(rows: Sequence[Row]) -> str:
    head = ("site", "count>", "min>", "mean>", "median>", "max>")
    return table(head, [(_or_none(r["site"]), str(r["count"]), *_spread(r)) for r in rows])


def _transfers(rows: Sequence[Row]) -> str:
    head = ("from", "to", "with", "count>", "failed>", "retries>", "bytes>", "goodput>", "median>",
            "path")  # fmt: skip
    cells = [
        (
            printable(r["src"]),
            printable(r["dst"]),
            printable(r["tool"]),
            str(r["count"]),
            str(r["failed"] or "-"),
            str(r["retries"] or "-"),
            _size(r),
            _rate(r["goodput_bps"]),
            _rate(r["median_bps"]),
            _paths(r),
        )
        for r in rows
    ]
    labels = [f"from {c[0]} to {c[1]} with {c[2]}, path {c[-1]}" for c in cells]
    return fitted(head, cells, labels, (0, 1, 2, len(head) - 1))


def _size(row: Row) -> str:
    if row["unsized"] == row["count"]:
        return "-"
    return format_size(row["bytes"]) + (" and more" if row["unsized"] else "")


def _paths(row: Row) -> str:
    ways = [f"{'-'.join(p['path'])} ({p['count']})" for p in row["paths"]]
    ways += [f"best effort ({row['best_effort']})"] if row["best_effort"] else []
    return printable(", ".join(ways)) or "-"


def _failure(failed: Row, inside: str) -> Iterable[str]:
    how = _how(failed)
    where = f" at {printable(failed['site'])}" if failed["site"] else ""
    part = f" of {printable(inside)}" if inside else ""
    host = f" on {printable(failed['host'])}" if failed["host"] else ""
    tries = f", {failed['attempts']} attempts" if failed["attempts"] > 1 else ""
    word = "Failed, then done" if failed["retried"] else "Failed"
    removed = failed["outcome"] == "removed"
    why = how if removed else printable(failed["reason"]) or how
    tasks = _tasks(failed["failed_tasks"])
    yield wrapped(f"{word}: {printable(failed['job'])}{part}{where}{host}: {why}{tries}{tasks}")
    if removed and failed["reason"]:
        yield f"  | {printable(failed['reason'])}"
    if hold := failed.get("hold"):
        yield f"  on hold for {for_people(hold['seconds'])} before{_code(hold)}"
        yield f"  | {printable(hold['reason']) or _NO_REASON}"
    if failed["output"]:
        yield f"  output: {printable(failed['output'])}"
    elif failed.get("not_found"):
        yield f"  output not found: {printable(failed['not_found'])}"
    for line in failed["stderr"].splitlines():
        yield f"  | {printable(line)}"


def _how(failed: Row) -> str:
    """How a job ended."""
    code = failed["exitcode"]
    if failed["outcome"] == "removed" or code is None:
        return str(failed["outcome"])
    if code == NOT_STARTED:
        return "the program could not be started"
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def _tasks(failed: Sequence[Row]) -> str:
    """Which tasks failed in a clustered job, "" for any other."""
    named = [
        f"{printable(one['task']) or 'one'} ({printable(one['transformation'])})"
        for one in failed[:_NAMED_TASKS]
    ]
    more = " and more" if len(failed) > len(named) else ""
    word = "task" if len(failed) == 1 else "tasks"
    return f", in {word} {', '.join(named)}{more}" if failed else ""


def _counts(status: Row, state: str, name: str) -> tuple[str, ...]:
    numbers = (str(status[column]) for column in _COLUMNS)
    return (*numbers, f"{status['percent_done']:.2f}", state, printable(name))


def _spread(row: Row) -> tuple[str, ...]:
    if not row["count"]:
        return ("-",) * 4
    return tuple(_time(row[name]) for name in ("min_s", "mean_s", "median_s", "max_s"))


def _time(seconds: float) -> str:
    """As :func:`~adon.cli.output.duration`, and not wider than a column of six others."""
    hours = seconds / 3600.0
    return duration(seconds) if hours < _HOURS else f"{hours:.{1 if hours < _MANY_HOURS else 0}f} h"


def _or_none(name: str) -> str:
    return printable(name) or "-"


def _state(one: Row) -> str:
    return "stuck" if one["stuck"] else str(one["state"])


def _stuck(found: Iterable[Row]) -> list[str]:
    return [
        wrapped(f"{printable(one['name'])} is stuck: {printable(one['stuck'])}")
        for one in found
        if one["stuck"]
    ]


def _ends(found: Iterable[Row]) -> list[str]:
    """Why workflows failed where no job did."""
    return [
        f"{printable(one['name'])} {one['state']}\n  | {printable(one['reason'])}"
        for one in found
        if one.get("reason")
    ]


def _held(found: Iterable[Row], now: float) -> list[str]:
    """Jobs that are on hold, and why."""
    held = [one for workflow in found for one in workflow.get("held", ())]
    lines = [f"{len(held)} job{' is' if len(held) == 1 else 's are'} held"]
    for one in held:
        where = f" at {printable(one['site'])}" if one["site"] else ""
        since = local_time(one["since"])
        lines.append(
            f"Held: {printable(one['job'])}{where} since {since},"
            f" {for_people(max(0.0, now - one['since']))}{_code(one)}"
        )
        lines.append(f"  | {printable(one['reason']) or _NO_REASON}")
    return ["\n".join(lines)] if held else []


def _code(hold: Row) -> str:
    """HTCondor's codes of a hold."""
    known = hold["code"] or hold["subcode"]
    return f", code {hold['code']}.{hold['subcode']}" if known else ""


def _ago(at: float, now: float) -> str:
    return for_people(max(0.0, now - at)) if at else "-"


def _rate(value: float | None) -> str:
    return "-" if value is None else format_rate(value)
