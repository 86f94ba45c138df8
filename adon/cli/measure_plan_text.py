"""A schedule of measurements as text: tables, and who has what at which time."""

from __future__ import annotations

import string
from collections import defaultdict

from adon.cli.output import table
from monitors.measurements.load import LoadBound, ResourceUse, usage, words
from monitors.measurements.tasks import Agreement, Resource, Schedule, Task
from network_provisioner.base.units import format_rate

COLUMNS = 72
_BAR = 10
_LETTERS = string.ascii_lowercase + string.ascii_uppercase


def described(
    tasks: list[Task], agreement: Agreement, schedule: Schedule, most: LoadBound, slots: int
) -> str:
    """How full it is, what is needed how much, and the first slots."""
    if not tasks:
        return "no measurement is planned: monitoring.tasks is empty"
    count = len(schedule.slots)
    lines = [
        f"tasks {len(tasks)}, measurements {count}, again every {clock(schedule.hyperperiod_ms)}",
        f"{most.load:.1%} of what could be at most: {most.why}",
        "",
        table(
            ("what", "needed", "tasks>", "at once>", "agreed>", "load>", "agreed>"),
            [_row(found) for found in usage(tasks, agreement, schedule)],
        ),
    ]
    if slots:
        rows = [
            (clock(s.start_ms), clock(s.end_ms), clock(s.deadline_ms), s.task)
            for s in schedule.slots[:slots]
        ]
        lines += ["", table(("from>", "until>", "deadline>", "task"), rows)]
        if count > slots:
            lines.append(f"and {count - slots} more (--slots {count})")
    return "\n".join(lines)


def _row(found: ResourceUse) -> tuple[str, ...]:
    marks = min(_BAR, max(round(found.share * _BAR), 1 if found.share > 0 else 0))
    return (
        f"{found.kind} {found.name}",
        f"{'#' * marks:.<{_BAR}} {found.share:6.1%}",
        str(found.tasks),
        str(found.at_once),
        "-" if found.agreed is None else str(found.agreed),
        format_rate(found.load_bps),
        "-" if found.agreed_bps is None else format_rate(found.agreed_bps),
    )


def clock(ms: int) -> str:
    """Time since the hyperperiod began: ``0:05:30``, with milliseconds where there are some."""
    seconds, rest = divmod(ms, 1000)
    text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:03}" if rest else text


def gantt(tasks: list[Task], schedule: Schedule) -> str:
    """A line for each host and link, a column for a part of the hyperperiod: in it the letter of
    the task that takes most of it, ``.`` where none does."""
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
    names = {resource: words(resource) for resource in taken}
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
    found = []
    while start < end:
        column = start % whole * COLUMNS // whole
        border = start // whole * whole + -(-(column + 1) * whole // COLUMNS)
        stop = min(end, border)
        found.append((column, stop - start))
        start = stop
    return found
