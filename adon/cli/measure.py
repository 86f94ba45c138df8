"""Measure the network between sites: when, by whom, and with what result."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.measure_run import add_more
from adon.cli.output import print_json
from adon.cli.parsing import Nouns, add_command, add_json, add_noun, whole

if TYPE_CHECKING:
    from adon.config.monitoring import MonitoringConfig
    from monitors.measurements.load import LoadBound
    from monitors.measurements.tasks import Agreement, Schedule, Task
    from network_provisioner.topology.graph import Topology

_PLAN = """Show when each measurement of adon.yml is made, or say which ones cannot fit.

The schedule is that of a hyperperiod, after which it repeats: no two measurements that share a host
or a link at the same time, every one within its deadline, the agreement kept. 'needed' is the part
of the time in which something is measured there. The first line says how much of what could be
measured at most that is, and what is scarcest. Needs no broker.
"""
_PLAN_MORE = """
Examples:
  adon measure plan
  adon measure plan --config examples/adon.yml --gantt
  adon measure plan --slots 100
  adon measure plan --json

Exit codes: 0 all fit; 1 they do not, those that cannot fit are named; 2 adon.yml cannot be used.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon measure``."""
    verbs = add_noun(nouns, "measure", __doc__)
    plan = add_command(verbs, "plan", _PLAN, _plan, _PLAN_MORE)
    plan.add_argument(
        "--config", type=Path, default=Path("adon.yml"), metavar="FILE",
        help="where tasks, agreement and network stand (default: ./%(default)s)",
    )  # fmt: skip
    plan.add_argument(
        "--gantt", action="store_true", help="draw who has which host and link at what time"
    )
    plan.add_argument(
        "--slots", type=whole(0, 1_000_000), default=10, metavar="N",
        help="list so many of the first measurements (default: %(default)s)",
    )  # fmt: skip
    add_json(plan)
    add_more(verbs)


def _plan(args: argparse.Namespace) -> int:
    from monitors.measurements.load import bound
    from monitors.measurements.schedule import plan
    from monitors.measurements.task_data import agreement_from_dict, tasks_from_dict
    from monitors.measurements.tasks import Infeasible
    from network_provisioner.base.errors import InputError

    settings, network = _read(args.config)
    try:
        tasks = list(tasks_from_dict(settings.tasks, network).values())
        agreement = agreement_from_dict(settings.agreement, network)
        most = bound(tasks, agreement)
        schedule = plan(tasks, agreement)
    except Infeasible as error:
        if args.json:
            print_json({"feasible": False, "problem": str(error), "tasks": list(error.tasks)})
        else:
            print(error)
        return 1
    except InputError as error:
        raise InputError(f"{args.config}: monitoring: {error}") from None
    if args.json:
        print_json(_data(tasks, agreement, schedule, most))
        return 0
    from adon.cli.measure_plan_text import described, gantt

    print(described(tasks, agreement, schedule, most, args.slots))
    if args.gantt and schedule.slots:
        print(f"\n{gantt(tasks, schedule)}")
    return 0


def _read(path: Path) -> tuple[MonitoringConfig, Topology]:
    """The section and the network, whether its measurements fit or not. Raises InputError."""
    from adon.config.adon_yml import Config, checked, parse_config
    from adon.config.monitoring import MonitoringConfig
    from adon.config.yamlfile import read_yaml
    from network_provisioner.topology.data import topology_from_dict

    data = read_yaml(path)
    if not isinstance(data, dict):
        parse_config(data, str(path))  # refuses it
    settings = checked(Config, data, str(path)).monitoring or MonitoringConfig()
    rest = {key: value for key, value in data.items() if key != "monitoring"}
    return settings, topology_from_dict(parse_config(rest, str(path)).topology)


def _data(
    tasks: list[Task], agreement: Agreement, schedule: Schedule, most: LoadBound
) -> dict[str, object]:
    from dataclasses import asdict

    from monitors.measurements.load import usage

    return {
        "feasible": True,
        "hyperperiod_ms": schedule.hyperperiod_ms,
        "load": most.load,
        "scarcest": most.why,
        "usage": [asdict(found) for found in usage(tasks, agreement, schedule)],
        "slots": [
            {"task": s.task, "start_ms": s.start_ms, "end_ms": s.end_ms, "run": s.number,
             "release_ms": s.release_ms, "deadline_ms": s.deadline_ms}
            for s in schedule.slots
        ],
    }  # fmt: skip
