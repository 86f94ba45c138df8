"""What ``adon measure`` shows, as text: a schedule with who has what at which time, tasks, agents,
runs, results."""

from __future__ import annotations

import math
import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from adon.cli.output import Column, duration, table
from adon.cli.terminal import bar, below_table, grid
from network_provisioner.base.errors import printable
from network_provisioner.base.units import format_rate

if TYPE_CHECKING:
    from monitors.measurements.load import LoadBound
    from monitors.measurements.tasks import Resource, Schedule, Task

COLUMNS = 72
_LETTERS = string.ascii_lowercase + string.ascii_uppercase
_USAGE = (
    Column("kind", "what", lambda kind, name: f"{kind} {name}", ("name",)),
    Column("share", "needed", lambda share: f"{bar(share)[:11]}{share:6.1%}"),
    Column("tasks", "tasks>"),
    Column("at_once", "at once>"),
    Column("agreed", "agreed>"),
    Column("load_bps", "load>"),
    Column("agreed_bps", "agreed>"),
)
Rows = Sequence[Mapping[str, Any]]


def status_text(
    tasks: list[Task], schedule: Schedule, most: LoadBound, data: Mapping[str, Any], slots: int
) -> str:
    """How full it is, what is needed how much, and the first slots, of :func:`~adon.cli.measure`'s
    data."""
    if not tasks:
        return "no measurement is planned: monitoring.tasks is empty"
    count = len(schedule.slots)
    lines = [
        f"tasks {len(tasks)}, measurements {count}, again every {clock(schedule.hyperperiod_ms)}",
        f"{most.load:.1%} of what could be at most: {most.why}",
        "",
        table(_USAGE, data["usage"]),
    ]
    if slots:
        lines += ["", table(SLOTS, data["slots"][:slots])]
        if count > slots:
            lines.append(f"and {count - slots} more (--limit {count})")
    return "\n".join(lines)


def clock(ms: int) -> str:
    """Time since the hyperperiod began: ``0:05:30``, with milliseconds where there are some."""
    seconds, rest = divmod(ms, 1000)
    text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:03}" if rest else text


SLOTS = (
    Column("start_ms", "from>", clock),
    Column("end_ms", "until>", clock),
    Column("deadline_ms", "deadline>", clock),
    Column("task"),
)


def gantt(tasks: list[Task], schedule: Schedule) -> str:
    """A line for each host and link, a column for a part of the hyperperiod: in it the letter of
    the task that takes most of it, ``.`` where none does."""
    from monitors.measurements.load import resource_text

    whole = schedule.hyperperiod_ms
    used = [task for task in tasks if task.hosts or task.links]
    letters = {task.name: _LETTERS[n % len(_LETTERS)] for n, task in enumerate(used)}
    by_name = {task.name: task for task in used}
    taken: defaultdict[Resource, list[defaultdict[str, int]]] = defaultdict(
        lambda: [defaultdict(int) for _ in range(COLUMNS)]
    )
    for slot in schedule.slots:
        for resource in by_name[slot.task].needs if slot.task in by_name else ():
            for column, ms in _columns(slot.start_ms, slot.end_ms, whole):
                taken[resource][column][letters[slot.task]] += ms
    names = {resource: resource_text(resource) for resource in taken}
    width = max((len(name) for name in names.values()), default=0)
    lines = [f"{'':{width}}  0:00:00{clock(whole):>{COLUMNS - 7}}"]
    for resource in sorted(taken, key=lambda r: names[r]):
        marks = [
            max(cell, key=lambda mark: (cell[mark], mark)) if cell else "."
            for cell in taken[resource]
        ]
        lines.append(f"{names[resource]:{width}}  {''.join(marks)}")
    lines += ["", *(f"{letters[task.name]}  {task.name}" for task in used)]
    return "\n".join(lines)


def _columns(start: int, end: int, whole: int) -> list[tuple[int, int]]:
    """The columns that a slot touches, and for how long."""
    columns = []
    while start < end:
        column = start % whole * COLUMNS // whole
        border = start // whole * whole + -(-(column + 1) * whole // COLUMNS)
        stop = min(end, border)
        columns.append((column, stop - start))
        start = stop
    return columns


def tasks(now: float) -> list[Column]:
    """Of a list of tasks."""
    return [
        Column("name", "task"),
        Column("tool"),
        Column("subject", "of"),
        Column("every_s", "every>"),
        Column("for_s", "for>"),
        Column("next", "next", lambda at: _ahead(at, now)),
        *(
            Column("counts", f"{state}>", lambda counts, state=state: str(counts.get(state, 0)))
            for state in ("done", "failed", "missed")
        ),
        Column("configured", "from", lambda is_so, by: "adon.yml" if is_so else by or "-", ("by",)),
    ]


def with_problems(rows: Rows, shown: str) -> str:
    """A table of tasks, and why some are in no schedule."""
    problems = [_said(f"{t['name']}: {t['problem']}") for t in rows if t["problem"]]
    return "\n".join([shown, *below_table(problems)])


def agents(now: float) -> list[Column]:
    """Of a list of agents."""
    return [
        Column("name", "agent"),
        Column("address"),
        Column("present", "is", lambda present: "there" if present else "away"),
        Column("last_seen", "seen", lambda at: _seen(at, now)),
        Column("offset_s", "clock>", _clock, ("error_s",)),
        Column("unsent", "waiting>"),
        Column("to_do", "to do>"),
        Column("version"),
        Column("tools", "tools", " ".join),
    ]


def with_errors(rows: Rows, now: float, shown: str) -> str:
    """A table of agents, and the last thing that went wrong at each."""
    errors = [
        _said(f"{a['name']}, {_seen(a['last_error_at'], now)}: {a['last_error']}")
        for a in rows
        if a["last_error"]
    ]
    unseen = [_said(a["name"]) for a in rows if a["last_seen"] is None]
    if unseen:
        errors.append(
            f"{', '.join(unseen)}: never seen; 'adon agent run --config agent.yml' starts an agent"
        )
    return "\n".join([shown, *below_table(errors)])


def runs(rows: Rows, moved: Rows, now: float) -> list[Column]:
    """Of a list of runs, of which some were moved."""
    instead = {m["run"]: f"moved once, from {_at(m['instead_of'], now)}" for m in moved}
    return [
        Column("at", "at", lambda at: _at(at, now)),
        Column("at", "in>", lambda at: _ahead(at, now)),
        Column("until", "for>", lambda until, at: duration(until - at), ("at",)),
        Column(
            "task", "task", lambda t, by: f"{t} (requested by {by})" if by else t, ("demanded",)
        ),
        Column("subject", "of"),
        Column("state", "state", partial(_state, now=now), ("at", "until")),
        Column("error", "why", lambda why, run: why or instead.get(run, ""), ("id",)),
    ]


def schedule(answer: Mapping[str, Any], runs: str) -> str:
    """The runs as a table, "" for none, and the use of hosts and links."""
    lines = [
        f"{_counted(answer['tasks'], 'task')}, {_counted(answer['slots'], 'run')} in "
        f"{duration(answer['hyperperiod_s'])}, "
        "then again"
    ]
    used = [(str(name), share) for name, share in answer["hosts"].items()]
    used += [("-".join(item["link"]), item["use"]) for item in answer["links"]]
    if used:
        uses = [(name, f"{100 * share:.1f} %") for name, share in used]
        lines += ["", grid(("host or link", "in use>"), uses)]
    return "\n".join([*lines, "", runs or "no run in this time"])


def run_time_text(run: Mapping[str, Any], now: float) -> str:
    """When a run will be."""
    wait_s = max(0.0, float(run["at"]) - now)
    return (
        _said(f"{run['id']}: {run['tool']} of {run['subject']} at {_at(run['at'], now)}, ")
        + f"in {duration(wait_s)}, for {duration(run['until'] - run['at'])}"
    )


def results(run: Mapping[str, Any], rows: Rows, hidden: int) -> str:
    """What came of a run."""
    lines = [_said(f"{m['metric']}  {m['subject']}  {_value(m)}") for m in rows]
    if hidden:
        lines.append(f"{hidden} more were recorded, which you may not see")
    if run["state"] != "done":
        headline = f"{run['id']}: {run['state']}{': ' if run['error'] else ''}{run['error']}"
        lines.append(_said(headline))
    return "\n".join(lines)


def who(keys: Rows, source: str, to: str, metric: str) -> str:
    """Who may start, and who may see, each with the reason."""
    ends = f"from {source} to {to}" if to else f"at {source}"
    lines = []
    for what, question in (
        ("start", f"Who may start measurements of {metric} {ends}?"),
        ("see", f"Who may see {metric} {ends}?"),
    ):
        able = [(_said(k["name"]) or "anybody", _said(k[f"{what}_why"])) for k in keys if k[what]]
        rows = [f"  {name}: {why}" for name, why in able] or ["  none of the tokens shown here"]
        lines += [question, *rows]
    return "\n".join(lines)


def _said(value: object) -> str:
    """What agents and other users say, on one line and without a terminal's own signs."""
    return printable("" if value is None else str(value))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _value(row: Mapping[str, Any]) -> str:
    value, unit = float(row["value"]), str(row["unit"])
    if unit == "bit/s":
        return format_rate(value)
    if unit == "s":
        return duration(value)
    return f"{value:.6g}" + ("" if unit == "1" else f" {unit}")


def _state(state: str, at: float, until: float, now: float) -> str:
    if state == "planned" and at <= now:
        return "under way" if now < until else "no answer yet"
    return state


def _clock(offset_s: float | None, error_s: float | None) -> str:
    if offset_s is None:
        return "-"
    in_s = max(abs(offset_s), error_s or 0.0) >= 0.9995
    unit, factor = ("s", 1) if in_s else ("ms", 1000)
    offset = f"{_figures(factor * offset_s, 3):+g} {unit}"
    return offset if error_s is None else f"{offset} ± {_figures(factor * error_s, 2):g}"


def _figures(value: float, count: int) -> float:
    """Rounded to this many figures, but never a whole part."""
    return round(value, max(0, count - 1 - math.floor(math.log10(abs(value))))) if value else 0.0


def _seen(instant: float, now: float) -> str:
    return f"{duration(max(0, round(now - instant)))} ago"


def _at(instant: float, now: float) -> str:
    """The time of day, with its date where that is not today."""
    moment, today = (datetime.fromtimestamp(t).astimezone() for t in (instant, now))
    return moment.strftime("%H:%M:%S" if moment.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def _ahead(instant: float, now: float) -> str:
    ahead_s = round(instant - now)
    return f"{duration(ahead_s)}" if ahead_s >= 0 else f"-{duration(-ahead_s)}"
