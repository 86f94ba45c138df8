"""Whether a schedule is what it should be, looked at anew: nothing here is what made it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction

from monitors.measurements.tasks import Agreement, Schedule, Slot, Task

Key = tuple[str, object]


def verify(tasks: Iterable[Task], agreement: Agreement, schedule: Schedule) -> list[str]:
    """All that is wrong with a schedule, a sentence each; nothing where it is right.

    Right is: the hyperperiod is a multiple of every period; every run of every task is there once,
    takes its time and lies between its release and its deadline; no two runs that share a host or a
    link overlap, also across the hyperperiod's end; link and domain loads keep to the agreement.
    """
    by_name = {task.name: task for task in tasks}
    wrong = list(_runs(by_name, schedule))
    known = [slot for slot in schedule.slots if slot.task in by_name]
    wrong += _conflicts(by_name, known, schedule.hyperperiod_ms)
    wrong += _loads(by_name, known, schedule.hyperperiod_ms, agreement)
    return wrong


def _runs(tasks: dict[str, Task], schedule: Schedule) -> Iterator[str]:
    whole = schedule.hyperperiod_ms
    there = Counter((slot.task, slot.number) for slot in schedule.slots)
    for (name, number), count in there.items():
        if name not in tasks:
            yield f"{name} is no task"
        elif count > 1:
            yield f"{name} has run {number} {count} times"
    for name, task in tasks.items():
        if whole % task.period_ms:
            yield f"{name} has period {task.period_ms} ms, which does not divide {whole} ms"
        missing = [n for n in range(whole // task.period_ms) if (name, n) not in there]
        if missing:
            yield f"{name} lacks {len(missing)} runs, the first of them {missing[0]}"
    for slot in schedule.slots:
        slot_task = tasks.get(slot.task)
        if slot_task is None:
            continue
        release = slot.number * slot_task.period_ms
        if not 0 <= slot.number < whole // slot_task.period_ms:
            yield f"{slot.task} has run {slot.number}, which is not of this hyperperiod"
        if (slot.release_ms, slot.deadline_ms) != (release, release + slot_task.deadline_ms):
            yield f"{slot.task} run {slot.number} has a window that is not the task's"
        if slot.end_ms - slot.start_ms != slot_task.duration_ms:
            yield f"{slot.task} run {slot.number} takes {slot.end_ms - slot.start_ms} ms"
        if not release <= slot.start_ms <= slot.end_ms <= release + slot_task.deadline_ms:
            yield f"{slot.task} run {slot.number} is outside its window"


def _conflicts(tasks: dict[str, Task], slots: list[Slot], whole_ms: int) -> Iterator[str]:
    busy: defaultdict[Key, list[tuple[int, int, str]]] = defaultdict(list)
    for slot in slots:
        task = tasks[slot.task]
        keys: list[Key] = [("host", h) for h in task.hosts] + [("link", x) for x in task.links]
        for key in keys:
            for start, end in _within(slot, whole_ms):
                busy[key].append((start, end, slot.task))
    for (kind, name), times in busy.items():
        times.sort()
        until, who = -1, ""
        for start, end, other in times:
            if start < until:
                yield f"{who} and {other} are both on {kind} {name} at {start} ms"
            if end > until:
                until, who = end, other


def _loads(
    tasks: dict[str, Task], slots: list[Slot], whole_ms: int, agreement: Agreement
) -> Iterator[str]:
    for task in tasks.values():
        for link in task.links:
            if task.load_bps > agreement.links.get(link, float("inf")):
                yield f"{task.name} puts more on link {link} than the agreement allows"
    for name, links in agreement.domains.items():
        changes: defaultdict[int, list[Fraction | int]] = defaultdict(lambda: [0, 0])
        for slot in slots:
            if links & tasks[slot.task].links:
                for start, end in _within(slot, whole_ms):
                    load = Fraction(tasks[slot.task].load_bps)
                    for at, sign in ((start, 1), (end, -1)):
                        changes[at][0] += sign
                        changes[at][1] += sign * load
        count, load_bps = Fraction(0), Fraction(0)
        for at in sorted(changes):
            count += changes[at][0]
            load_bps += changes[at][1]
            if count > agreement.at_once.get(name, len(slots)):
                yield f"{count} measurements are in domain {name} at {at} ms"
            if load_bps > Fraction(agreement.domain_bps.get(name, float(load_bps) + 1)):
                yield f"{float(load_bps):g} b/s are in domain {name} at {at} ms"


def _within(slot: Slot, whole_ms: int) -> list[tuple[int, int]]:
    """The slot's time as one or two stretches within the hyperperiod."""
    start = slot.start_ms % whole_ms
    end = start + slot.end_ms - slot.start_ms
    return [(start, end)] if end <= whole_ms else [(start, whole_ms), (0, end - whole_ms)]
