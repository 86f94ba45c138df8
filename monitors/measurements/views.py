"""What the coordinator shows to people and programs: values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monitors.measurements.agent_registry import AgentRegistry
from monitors.measurements.registry import Entry, TaskRegistry
from monitors.measurements.run_store import RunStore
from monitors.measurements.runs import Run, State
from monitors.measurements.tasks import Slot

_NEXT = 5  # runs that an agent shows


def agent_view(
    agent_registry: AgentRegistry, run_store: RunStore, name: str, now_ms: int
) -> dict[str, Any]:
    """How an agent is, and what it does next."""
    to_do = run_store.to_do(name, now_ms)
    return {
        **agent_registry.view(name, now_ms / 1000),
        "to_do": len(to_do),
        "next": [
            {"run": run.id, "at": run.at_ms / 1000, "tool": run.tool, "subject": run.subject}
            for run in to_do[:_NEXT]
        ],
    }


def task_view(
    entry: Entry, next_ms: int | None, counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """A task, when it is made next, and how many of its runs ended how."""
    definition, task = entry.definition, entry.task
    known = counts.get(definition.name, {})
    return {
        "name": definition.name,
        "tool": definition.tool.name,
        "from": definition.src,
        "to": definition.dst,
        "subject": definition.subject,
        "metrics": list(definition.metrics),
        "every_s": task.period_ms / 1000,
        "for_s": task.duration_ms / 1000,
        "within_s": task.deadline_ms / 1000,
        "load_bps": task.load_bps,
        "hosts": sorted(task.hosts),
        "links": sorted(map(list, task.links)),
        "options": {k: v for k, v in definition.options.items() if v is not None and k != "key"},
        "by": None if entry.kept is None else entry.kept.by,
        "configured": entry.kept is None,
        "problem": entry.problem,
        "next": None if next_ms is None else next_ms / 1000,
        "counts": {str(state): known.get(str(state), 0) for state in State},
    }


def schedule_view(
    registry: TaskRegistry, until_ms: int, moved: Sequence[tuple[Run, Slot]]
) -> dict[str, Any]:
    """The schedule that repeats: its length, how many runs it has, the share of time that each
    host and link is used by them, and which runs to come are not where their slots are."""
    schedule = registry.schedule
    use: dict[str, float] = {}
    link_use: dict[tuple[str, str], float] = {}
    for task in registry.tasks():
        share = task.duration_ms / task.period_ms
        for host in task.hosts:
            use[host] = use.get(host, 0.0) + share
        for link in task.links:
            link_use[link] = link_use.get(link, 0.0) + share
    return {
        "hyperperiod_s": schedule.hyperperiod_ms / 1000,
        "slots": len(schedule.slots),
        "tasks": len(registry.tasks()),
        "until": until_ms / 1000,
        "hosts": {name: round(use[name], 6) for name in sorted(use)},
        "links": [
            {"link": list(link), "use": round(link_use[link], 6)} for link in sorted(link_use)
        ],
        "moved": [
            {
                "run": run.id,
                "task": run.task,
                "at": run.at_ms / 1000,
                "instead_of": slot.start_ms / 1000,
                "release": slot.release_ms / 1000,
                "deadline": slot.deadline_ms / 1000,
            }
            for run, slot in moved
        ],
    }
