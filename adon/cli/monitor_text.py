"""Workflows and their analysis as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from adon.cli.output import Column, duration, fitted, table
from adon.cli.output import Record as Row
from adon.cli.terminal import below_table, line_width, wrapped
from monitors.workflows.logs.kickstart import NOT_STARTED
from monitors.workflows.logs.status import for_people
from network_provisioner.base.errors import printable
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import format_size

_WIDEST, _NARROWEST = 40, 8  # letters of a name in a list
_SHORT_ID = 8  # letters of a UUID, where there is no room for all
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HOURS, _MANY_HOURS = 2, 100
_DAG_LOG = "the event log of its DAG"
_NO_REASON = "HTCondor gives no reason"
_NAMED_TASKS = 5
_COUNTS = ("unready", "ready", "pre", "in_queue", "post", "done", "fail")
STATUS = (
    *(Column(key, f"{key.upper().replace('QUEUE', 'Q')}>") for key in _COUNTS),
    Column("percent_done", "%DONE>", "{:.2f}".format),
    Column("state", "STATE"),
    Column("name", "WORKFLOW"),
)


def list_columns(now: float, names: int = _WIDEST, ids: Callable[[str], str] = str) -> list[Column]:
    """Of a list of workflows, with ``names`` of this many letters and ``ids`` as they are shown."""
    return [
        Column("state", "state", lambda state, stuck: "stuck" if stuck else state, ("stuck",)),
        Column("totals.percent_done", "%done>", "{:.1f}".format),
        Column("totals.done", "done>", lambda *of: "/".join(map(str, of)), ("totals.total",)),
        Column("totals.fail", "failed>", lambda failed: str(failed or "-")),
        Column("user", "user", lambda user: shortened(user, names) or "-"),
        Column("name", "name", lambda name: shortened(name, names)),
        Column("at", "changed>", lambda at: _ago(at, now)),
        Column("id", "id", ids),
    ]


def fitted_columns(rows: Sequence[Row], now: float) -> list[Column]:
    """Those of a list of workflows that begins with ``rows``, as short as the terminal needs
    them."""
    columns = list_columns(now)
    if not rows or _excess(columns, rows) <= 0:
        return columns
    length = _shortest([printable(row["id"]) for row in rows])

    def beginning(key: str) -> str:
        return key[:length] if _UUID.fullmatch(key) else key

    columns = list_columns(now, ids=beginning)
    excess = _excess(columns, rows)
    names = max(len(shortened(row["name"])) for row in rows)
    if 0 < excess <= names - _NARROWEST:  # else nothing is gained by it
        columns = list_columns(now, names - excess, beginning)
    return columns


def _excess(columns: Sequence[Column], rows: Sequence[Row]) -> int:
    """By how many letters a table is wider than the terminal."""
    widths = (
        max(len(column.heading.rstrip(">")), *(len(printable(column.text(row))) for row in rows))
        for column in columns
    )
    return sum(widths) + 2 * (len(columns) - 1) - line_width()


def _shortest(ids: Sequence[str]) -> int:
    """How short UUIDs may be typed: the length of beginnings that distinguish them."""
    for length in range(_SHORT_ID, 36, 4):
        short = [key[:length] if _UUID.fullmatch(key) else key for key in ids]
        if len(set(short)) == len(set(ids)):
            return length
    return 36


def shortened(name: str, widest: int = _WIDEST) -> str:
    """A name as it fits into a column: one that is very long would move all others' off a screen.
    The id says which workflow it is."""
    shown = printable(name)
    return shown if len(shown) <= widest else f"{shown[: widest - 1]}…"


def status_rows(workflow: Row, inner: Sequence[Row]) -> list[Row]:
    """A record for a workflow, for each inside it, and where there are some for all together: what
    is inside those inside is counted too, and of the whole only this is known."""
    rows: list[Row] = [
        {**row["status"], "state": _state(row), "name": row["name"]} for row in (workflow, *inner)
    ]
    if inner:
        total = workflow["totals"]
        whole = {key: total[key] for key in ("done", "fail", "percent_done")}
        names = {"state": _state(workflow), "name": f"all {total['total']} jobs"}
        rows.append(dict.fromkeys(_COUNTS) | whole | names)
    return rows


def status_text(
    workflow: Row, inner: Sequence[Row], now: float, waiting: Iterable[Row] = ()
) -> str:
    """The eight fields of Figure 16 of a workflow, of those inside it and of all; its changes, and
    why jobs wait for paths."""
    source = f"{_ago(workflow['at'], now)} ago by {printable(workflow['source']) or 'nobody'}"
    head = (
        f"{printable(workflow['name'])} of {printable(workflow['user']) or 'an unknown user'}"
        f" ({printable(workflow['id'])}), {source}"
    )
    blocks = [
        wrapped(head),
        fitted(STATUS, status_rows(workflow, inner), str, (len(STATUS) - 1,)),
        *below_table(stuck([workflow, *inner])),
        *_ends([workflow, *inner]),
        *_held([workflow, *inner], now),
        *(wrapped(f"{printable(w['job'])} waits: {printable(w['reason'])}") for w in waiting),
    ]
    if workflow["history"]:
        when = Column("at", "WHEN>", lambda at: f"-{for_people(max(0.0, now - at))}")
        blocks.append(table((when, *STATUS[:-1]), workflow["history"]))
    return "\n\n".join(blocks)


def analysis_text(workflow: Row, analysis: Row, inner: Sequence[Row] = (), now: float = 0.0) -> str:
    """Everything that is known about how a workflow went, with those inside it."""
    names = {row["id"]: row["name"] for row in inner}
    head = [*map(wrapped, _summary(workflow, analysis))]
    if workflow.get("reason"):
        head.append(f"why: {printable(workflow['reason'])}")
    blocks = ["\n".join(head), *_ends(inner), *_held([workflow, *inner], now)]
    if analysis["runtimes"]:
        blocks.append("Run times\n" + _runtimes(analysis["runtimes"]))
    if analysis["waits"]:
        blocks.append("Waits for a worker\n" + _waits(analysis["waits"]))
    if analysis["transfers"]:
        blocks.append("Transfers\n" + _transfers(analysis["transfers"]))
    for failed in analysis["failures"]:
        inside = "" if failed["workflow"] == workflow["id"] else names.get(failed["workflow"], "")
        blocks.append("\n".join(_failure(failed, inside)))
    return "\n\n".join(blocks)


def _summary(workflow: Row, analysis: Row) -> Iterable[str]:
    total = workflow["totals"]
    inside = len(analysis["workflows"]) - 1
    yield (
        f"{printable(workflow['name'])} of {printable(workflow['user']) or 'an unknown user'}:"
        f" {_state(workflow)}, {total['done']} of {total['total']} jobs done,"
        f" {total['fail']} failed"
    )
    if inside:
        yield f"with {inside} workflow{'s' if inside > 1 else ''} inside it"
    if workflow["stuck"]:
        yield f"stuck: {printable(workflow['stuck'])}"
    lost, slots = duration(analysis["lost_s"]), duration(analysis["lost_slot_s"])
    yield f"makespan {duration(analysis['makespan_s'])}, run times together " + (
        f"{duration(analysis['cumulative_s'])}, lost in failures {lost}"
        + (f" ({slots} of slots)" if slots != lost else "")
    )
    outcomes = ", ".join(f"{count} {word}" for word, count in analysis["outcomes"].items())
    attempts, retries = analysis["attempts"], analysis["retries"]
    yield (
        f"{attempts} attempt{'' if attempts == 1 else 's'} ({outcomes or _why_none(workflow)}),"
        f" {retries} {'retry' if retries == 1 else 'retries'}"
    )


def _why_none(workflow: Row) -> str:
    total = workflow["totals"]
    if workflow["state"] in ("planned", "running") or workflow["status"]["in_queue"]:
        return "none has ended"
    if not total["done"] + total["fail"]:
        return "no job was submitted"
    return f"found no event of its jobs, neither in {_DAG_LOG} nor in what DAGMan says"


def _runtimes(rows: Sequence[Row]) -> str:
    columns = (
        Column("transformation", "transformation", _what, ("kind",)),
        Column("site", "site", _or_none),
        Column("count", "count>"),
        Column("failed", "failed>", _or_dash),
        *_SPREAD,
        Column("total_s", "together>", _time_of, ("count",)),
        Column("cpu_s", "cpu>", _time),
    )
    return fitted(columns, rows, _label, (0, 1))


def _label(what: str, site: str) -> str:
    return what if site == "-" else f"{what} at {site}"


def _what(transformation: str, kind: str) -> str:
    """Jobs of one transformation that the planner added are for different things."""
    name, kind = printable(transformation), printable(kind)
    return name if kind in ("compute", name, "") else f"{name} ({kind})"


def _waits(rows: Sequence[Row]) -> str:
    return table((Column("site", "site", _or_none), Column("count", "count>"), *_SPREAD), rows)


def _transfers(rows: Sequence[Row]) -> str:
    columns = (
        Column("src", "from"),
        Column("dst", "to"),
        Column("tool", "with"),
        Column("count", "count>"),
        Column("failed", "failed>", _or_dash),
        Column("retries", "retries>", _or_dash),
        Column("bytes", "bytes>", _size, ("unsized", "count")),
        Column("goodput_bps", "goodput>"),
        Column("median_bps", "median>"),
        Column("paths", "path", _paths, ("best_effort",)),
    )
    label = "from {} to {} with {}, path {}".format
    return fitted(columns, rows, label, (0, 1, 2, len(columns) - 1))


def _size(n_bytes: int, unsized: int, count: int) -> str:
    if unsized == count:
        return "-"
    return format_size(n_bytes) + (" and more" if unsized else "")


def _paths(paths: Sequence[Row], best_effort: int) -> str:
    ways = [f"{'-'.join(p['path'])} ({p['count']})" for p in paths]
    ways += [f"best effort ({best_effort})"] if best_effort else []
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
        f"{printable(task['task']) or 'one'} ({printable(task['transformation'])})"
        for task in failed[:_NAMED_TASKS]
    ]
    more = " and more" if len(failed) > len(named) else ""
    word = "task" if len(failed) == 1 else "tasks"
    return f", in {word} {', '.join(named)}{more}" if failed else ""


def _time(seconds: float) -> str:
    """As :func:`~adon.cli.output.duration`, and not wider than a column of six others."""
    hours = seconds / 3600.0
    return duration(seconds) if hours < _HOURS else f"{hours:.{1 if hours < _MANY_HOURS else 0}f} h"


def _or_none(name: str) -> str:
    return printable(name) or "-"


def _or_dash(count: int) -> str:
    return str(count or "-")


def _time_of(seconds: float, count: int) -> str:
    return _time(seconds) if count else "-"


_SPREAD = tuple(
    Column(f"{name}_s", f"{name}>", _time_of, ("count",))
    for name in ("min", "mean", "median", "max")
)


def _state(row: Row) -> str:
    return "stuck" if row["stuck"] else str(row["state"])


def stuck(rows: Iterable[Row]) -> list[str]:
    return [
        f"{printable(row['name'])} is stuck: {printable(row['stuck'])}"
        for row in rows
        if row["stuck"]
    ]


def _ends(rows: Iterable[Row]) -> list[str]:
    """Why workflows failed where no job did."""
    return [
        f"{printable(row['name'])} {row['state']}\n  | {printable(row['reason'])}"
        for row in rows
        if row.get("reason")
    ]


def _held(rows: Iterable[Row], now: float) -> list[str]:
    """Jobs that are on hold, and why."""
    held = [job for workflow in rows for job in workflow.get("held", ())]
    lines = [f"{len(held)} job{' is' if len(held) == 1 else 's are'} held"]
    for job in held:
        where = f" at {printable(job['site'])}" if job["site"] else ""
        since = local_time(job["since"])
        lines.append(
            f"Held: {printable(job['job'])}{where} since {since},"
            f" {for_people(max(0.0, now - job['since']))}{_code(job)}"
        )
        lines.append(f"  | {printable(job['reason']) or _NO_REASON}")
    return ["\n".join(lines)] if held else []


def _code(hold: Row) -> str:
    """HTCondor's codes of a hold."""
    known = hold["code"] or hold["subcode"]
    return f", code {hold['code']}.{hold['subcode']}" if known else ""


def _ago(at: float, now: float) -> str:
    return for_people(max(0.0, now - at)) if at else "-"
