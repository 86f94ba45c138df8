"""Schedule, start and show measurements of the network between sites."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli import measure_text as text
from adon.cli.live import watch
from adon.cli.options import client, tool_options
from adon.cli.output import for_programs, print_fields, print_json, print_records
from adon.cli.parsing import (
    SETTINGS,
    Noun,
    add_broker,
    add_output,
    config,
    flag,
    limit,
    option,
)
from network_provisioner.access import ANYBODY
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.units import parse_duration
from network_provisioner.client.http1 import quoted

if TYPE_CHECKING:
    from adon.config.sections import MonitoringConfig
    from monitors.measurements.load import LoadBound
    from monitors.measurements.tasks import Agreement, Schedule, Task
    from network_provisioner.topology.graph import Topology

NOUN = Noun("measure", __doc__)
_LOOK_S = 0.5
_GRACE_S = 60.0  # after a run's end for its result to come
_NAME = option("name", "name of the task", "NAME")
_TO = option("--to", "the other end, if the tool has one", "SITE")
_WHAT = (
    option("--tool", "tcp, udp, echo, ping, trace, host or command", "TOOL"),
    option("--from", "first end", "SITE", dest="source"),
    _TO,
    option("--for", "duration (default: the tool's)", "TIME", dest="lasts"),
    SETTINGS,
)


@NOUN.verb(
    "plan",
    config("adon.yml with tasks, agreement and network"),
    flag("--gantt", "draw the use of each host and link over time"),
    limit(1_000_000, 10),
    add_output,
)
def _plan(args: argparse.Namespace) -> int:
    """Show the schedule of the measurements in adon.yml, or name those that do not fit.

    The schedule covers one hyperperiod and then repeats. No two measurements that share a host or
    a link run at the same time, each meets its deadline, and the agreement is kept. The first line
    shows how much of the possible load this is, and the scarcest resource; 'needed' is the share of
    time in which a resource is measured. Needs no broker.

    --csv and --columns print all measurements, and nothing else.

    Examples:
      adon measure plan
      adon measure plan --config examples/adon.yml --gantt
      adon measure plan --limit 100
      adon measure plan --csv > schedule.csv

    Exit codes: 0 all fit; 1 some do not, and are named; 2 adon.yml is unusable.
    """
    from monitors.measurements.load import bound
    from monitors.measurements.schedule import plan
    from monitors.measurements.task_data import agreement_from_dict, tasks_from_dict
    from monitors.measurements.tasks import Infeasible

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
    data = _data(tasks, agreement, schedule, most)

    def shown(_: str) -> str:
        lines = text.status_text(tasks, schedule, most, data, args.limit)
        return f"{lines}\n\n{text.gantt(tasks, schedule)}" if args.gantt and tasks else lines

    return print_records(args, text.SLOTS, data["slots"], document=data, text=shown)


def _read(path: Path) -> tuple[MonitoringConfig, Topology]:
    """The section and the network, whether its measurements fit or not. Raises InputError."""
    from adon.config.adon_yml import parse_config
    from adon.config.sections import MonitoringConfig
    from adon.config.yamlfile import read_yaml
    from network_provisioner.topology.data import topology_from_dict

    config = parse_config(read_yaml(path), str(path), fitting=False)
    return config.monitoring or MonitoringConfig(), topology_from_dict(config.topology)


def _data(
    tasks: list[Task], agreement: Agreement, schedule: Schedule, most: LoadBound
) -> dict[str, Any]:
    from monitors.measurements.load import usage

    return {
        "feasible": True,
        "hyperperiod_ms": schedule.hyperperiod_ms,
        "load": most.load,
        "scarcest": most.why,
        "usage": [asdict(use) for use in usage(tasks, agreement, schedule)],
        "slots": [
            {"task": s.task, "start_ms": s.start_ms, "end_ms": s.end_ms, "run": s.number,
             "release_ms": s.release_ms, "deadline_ms": s.deadline_ms}
            for s in schedule.slots
        ],
    }  # fmt: skip


@NOUN.verb("list", add_broker, add_output, watch)
def _list(args: argparse.Namespace) -> int:
    """List regular measurements.

    Shows the next run of each task, and how many runs were done, failed or missed.

    Examples:
      adon measure list
      adon measure list --broker https://broker.example:8470 --json
    """
    tasks = client(args).read(list, "GET", "/v1/tasks")
    none = "nothing is measured regularly: 'adon measure add' adds a task"
    return print_records(
        args,
        text.tasks(time.time()),
        tasks,
        none=none,
        text=partial(text.with_problems, tasks),
    )


@NOUN.verb(
    "schedule",
    option("--task", "only this task", "NAME"),
    option("--around", "time to show before and after now", "TIME", default="10 min"),
    add_broker,
    add_output,
    watch,
)
def _schedule(args: argparse.Namespace) -> int:
    """Show recent and upcoming runs.

    Also shows the share of time in which measurements use each host and link.

    Examples:
      adon measure schedule
      adon measure schedule --task mu-tacc --around '2 h'
    """
    span_s, broker, now = parse_duration(args.around, "--around"), client(args), time.time()
    query = f"since={max(0.0, now - span_s):.3f}&until={now + span_s:.3f}"
    if args.task is not None:
        query += f"&task={quoted(args.task)}"
    schedule = broker.call("GET", "/v1/schedule")
    runs = broker.call("GET", f"/v1/runs?{query}")
    if args.task is not None and not runs["runs"]:
        with _named(broker, args.task):
            broker.call("GET", f"/v1/tasks/{quoted(args.task)}")
    return print_records(
        args,
        text.runs(runs["runs"], schedule["moved"], runs["now"]),
        runs["runs"],
        document={"schedule": schedule, **runs},
        text=lambda shown: text.schedule(schedule, runs["runs"] and shown),
    )


@NOUN.verb("agents", add_broker, add_output, watch)
def _agents(args: argparse.Namespace) -> int:
    """List the agents.

    Shows which are connected, when the others last were, and their clock errors.

    Examples:
      adon measure agents
      adon measure agents --json
    """
    agents, now = client(args).read(list, "GET", "/v1/agents"), time.time()
    none = "the broker knows no agent: they are listed under monitoring.agents in its adon.yml"
    return print_records(
        args,
        text.agents(now),
        agents,
        none=none,
        text=partial(text.with_errors, agents, now),
    )


@NOUN.verb(
    "run",
    option("task", "name of a task", "TASK", nargs="?"),
    *_WHAT,
    option("--within", "deadline, from now; at most 1 h", "TIME", default="10 min"),
    flag("--no-wait", "print the time of the run, and do not wait for it"),
    add_broker,
    add_output,
)
def _run(args: argparse.Namespace) -> int:
    """Measure now: run a task at once, or a single measurement.

    The broker schedules it where it disturbs no other measurement, and the command waits for the
    result.

    Examples:
      adon measure run mu-tacc-tcp
      adon measure run --tool echo --from mu --to tacc --for '5 s'
      adon measure run --tool tcp --from mu --to tacc --set streams=4 --set rate='200 Mb/s'

    Exit codes: 0 measured; 1 nothing measured; 2 the broker refuses or does not answer.
    """
    what = _what(args)
    if (args.task is None) == ("tool" not in what) or (args.task is not None and what):
        raise InputError("found a task and --tool, or neither; expected TASK, or --tool and --from")
    broker = client(args)
    if args.task is not None:
        path, body = f"/v1/tasks/{quoted(args.task)}/run", {"within": args.within}
    else:
        path, body = "/v1/tasks/run", {**what, "within": args.within}
    with _named(broker, args.task or ""):
        run = broker.call("POST", path, body)
    planned = text.run_time_text(run, time.time())
    key, until = str(run["id"]), float(run["until"])
    if args.no_wait:
        return print_fields(args, run, lambda: planned)
    if not for_programs(args):
        print(planned, flush=True)
    while run["state"] == "planned" and time.time() < until + _GRACE_S:
        time.sleep(_LOOK_S)
        run = broker.call("GET", f"/v1/runs/{quoted(key)}")
    return _said(args, broker, run)


def _said(args: argparse.Namespace, broker: Any, run: dict[str, Any]) -> int:
    """Print what came of a run; an exit code."""
    readings, hidden = [], 0
    for metric in run.get("measured", []):
        try:
            key = quoted(f"{metric}:{run['id']}")
            readings.append(broker.call("GET", f"/v1/measurements/by-id/{key}"))
        except BrokerError as error:
            if error.code != "unknown_measurement":
                raise
            hidden += 1  # who may start a measurement may not always see what it gives
    print_fields(
        args,
        {**run, "measurements": readings},
        lambda: text.results(run, readings, hidden),
    )
    return 0 if run["state"] == "done" else 1


@contextmanager
def _named(broker: Any, wanted: str) -> Iterator[None]:
    """Where there is no task ``wanted``, it is refused with the name of one that might be meant.
    Raises BrokerError."""
    from network_provisioner.base.errors import meant

    try:
        yield
    except BrokerError as error:
        if error.code != "unknown_task":
            raise
        names = [str(task["name"]) for task in broker.call("GET", "/v1/tasks")]
        hint = meant(wanted, names, "'adon measure list' has all")
        raise BrokerError(f"{error}: {hint}", error.code) from None


@NOUN.verb(
    "add",
    _NAME,
    *_WHAT,
    option("--every", "period", "TIME", required=True),
    option("--within", "deadline, from the start of each period (default: its end)", "TIME"),
    add_broker,
    add_output,
)
def _add(args: argparse.Namespace) -> int:
    """Add a regular measurement, or change one that was added before.

    Other measurements move only if the new one does not fit between them. If it does not fit at
    all, nothing changes.

    Examples:
      adon measure add mu-tacc --tool tcp --from mu --to tacc --every '1 h' --for '10 s'
      adon measure add mu-load --tool host --from mu --every '1 min'
    """
    body = {**_what(args), "every": args.every}
    if args.within is not None:
        body["within"] = args.within
    task = client(args).call("PUT", f"/v1/tasks/{quoted(args.name)}", body)
    return print_records(
        args,
        text.tasks(time.time()),
        [task],
        document=task,
        text=partial(text.with_problems, [task]),
    )


@NOUN.verb("delete", _NAME, add_broker, add_output)
def _delete(args: argparse.Namespace) -> int:
    """Delete a regular measurement. Its results stay in the archive.

    Examples:
      adon measure delete mu-tacc
    """
    broker = client(args)
    with _named(broker, args.name):
        task = broker.call("DELETE", f"/v1/tasks/{quoted(args.name)}")
    return print_fields(args, task, lambda: f"{args.name} is no longer measured")


@NOUN.verb(
    "who",
    option("--from", "first end", "SITE", dest="source", required=True),
    _TO,
    option("--metric", "metric", "METRIC", default="rtt"),
    config("read this adon.yml instead of asking the broker", None),
    add_broker,
    add_output,
)
def _who(args: argparse.Namespace) -> int:
    """Show who may start measurements between two sites, and who may see the results.

    Asks the broker, or reads adon.yml with --config. A broker shows researchers only their own
    permissions.

    Examples:
      adon measure who --from mu --to tacc
      adon measure who --from mu --to tacc --metric tcp_throughput --config adon.yml
    """
    args.to = args.to or ""
    if args.config is None:
        query = "&".join(
            f"{key}={quoted(value)}"
            for key, value in (("from", args.source), ("to", args.to), ("metric", args.metric))
            if value
        )
        keys = client(args).call("GET", f"/v1/access?{query}")["keys"]
    else:
        keys = _configured(args)
    document = {"from": args.source, "to": args.to, "metric": args.metric, "keys": keys}
    return print_fields(
        args, keys, lambda: text.who(keys, args.source, args.to, args.metric), document
    )


def _configured(args: argparse.Namespace) -> Any:
    """What adon.yml says. Raises InputError."""
    from adon.config.adon_yml import load_config
    from adon.config.security import keyring_of
    from monitors.measurements.task_data import known_end
    from monitors.rules import rules_from_list
    from network_provisioner.topology.data import topology_from_dict

    config = load_config(args.config)
    topology = topology_from_dict(config.topology)
    for name, end in (("--from", args.source), ("--to", args.to)):
        if end:
            known_end(end, name, topology)
    rules = rules_from_list(config.monitoring.access if config.monitoring else [], topology)
    keys = keyring_of(config).principals() or [ANYBODY]
    return rules.table(keys, [end for end in (args.source, args.to) if end], args.metric)


def _what(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say is measured. Raises InputError."""
    given = {"tool": args.tool, "from": args.source, "to": args.to, "for": args.lasts}
    what_given = {key: value for key, value in given.items() if value is not None}
    return {**what_given, "options": tool_options(args.set)} if args.set else what_given
