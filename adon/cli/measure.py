"""Measure the network between sites: when, by whom, and with what result."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli import measure_text as text
from adon.cli.options import answered, bad_answer, client
from adon.cli.output import print_json
from adon.cli.parsing import (
    CommandParser,
    Nouns,
    add_broker,
    add_command,
    add_json,
    add_noun,
    whole,
)
from network_provisioner.access import ANYBODY
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.units import parse_duration

if TYPE_CHECKING:
    from adon.config.sections import MonitoringConfig
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

_LIST = """List what is measured regularly.

When each task is measured next, and how many of its runs were done, failed or missed.
"""
_LIST_MORE = """
Examples:
  adon measure list
  adon measure list --broker https://broker.example:8470 --json
"""
_SCHEDULE = """Show the runs that come next and those just made.

And how much of its time each host and link is used by measurements. Times of day are UTC.
"""
_SCHEDULE_MORE = """
Examples:
  adon measure schedule
  adon measure schedule --task mu-tacc --for '2 h'
"""
_AGENTS = """List the agents.

Which are there, when others were seen last, and how right their clocks are.
"""
_AGENTS_MORE = """
Examples:
  adon measure agents
  adon measure agents --json
"""
_RUN = """Measure now: a task's measurement once more, or one that no task has.

The broker squeezes it in where it disturbs no other measurement, and the command waits for what
comes of it.
"""
_RUN_MORE = """
Examples:
  adon measure run mu-tacc-tcp
  adon measure run --tool echo --from mu --to tacc --for '5 s'
  adon measure run --tool tcp --from mu --to tacc --set streams=4 --set rate='200 Mb/s'

Exit codes: 0 measured; 1 nothing was measured; 2 the broker refuses, or cannot be asked.
"""
_ADD = """Measure something regularly from now on, or change what was added so.

No other measurement moves as long as the new one fits between them; where it cannot fit at all,
nothing changes.
"""
_ADD_MORE = """
Examples:
  adon measure add mu-tacc --tool tcp --from mu --to tacc --every '1 h' --for '10 s'
  adon measure add mu-load --tool host --from mu --every '1 min'
"""
_REMOVE = """Measure it no longer. What was measured stays in the archive."""
_REMOVE_MORE = """
Examples:
  adon measure remove mu-tacc
"""
_WHO = """Say who may start measurements between two sites, and who may see the results.

The thesis's two questions (chapter 4). Asks the broker, or with --config reads adon.yml; a broker
tells researchers of themselves alone.
"""
_WHO_MORE = """
Examples:
  adon measure who --from mu --to tacc
  adon measure who --from mu --to tacc --metric tcp_throughput --config adon.yml
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
    print(text.described(tasks, agreement, schedule, most, args.slots))
    if args.gantt and schedule.slots:
        print(f"\n{text.gantt(tasks, schedule)}")
    return 0


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
) -> dict[str, object]:
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


_NOTHING = "nothing is measured regularly: 'adon measure add' adds a task"
_NOBODY = "the broker knows no agent: they stand under monitoring.agents in its adon.yml"
_SHOWN_S = 600.0  # of the past and of what comes, where nothing else is said
_LOOK_S = 0.5
_GRACE_S = 60.0  # after a run's end for its result to come


def add_more(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add the verbs of ``adon measure`` that ask the broker."""
    add_broker(add_command(verbs, "list", _LIST, _list, _LIST_MORE))
    schedule = add_command(verbs, "schedule", _SCHEDULE, _schedule, _SCHEDULE_MORE)
    schedule.add_argument("--task", metavar="NAME", help="of one task only")
    schedule.add_argument(
        "--for", dest="span", default="10 min", metavar="TIME",
        help="how far back and ahead (default: %(default)s)",
    )  # fmt: skip
    add_broker(schedule)
    add_broker(add_command(verbs, "agents", _AGENTS, _agents, _AGENTS_MORE))
    run = add_command(verbs, "run", _RUN, _run, _RUN_MORE)
    run.add_argument("task", nargs="?", metavar="TASK", help="a task's name")
    _add_what(run)
    run.add_argument(
        "--within", default="10 min", metavar="TIME",
        help="how soon it has to be over (default: %(default)s, at most 1 h)",
    )  # fmt: skip
    run.add_argument("--no-wait", action="store_true", help="say when it will be, and end")
    add_broker(run)
    add = add_command(verbs, "add", _ADD, _add, _ADD_MORE)
    add.add_argument("name", metavar="NAME", help="what it is called")
    _add_what(add)
    add.add_argument("--every", required=True, metavar="TIME", help="how often")
    add.add_argument(
        "--within", metavar="TIME", help="how late it may be over (default: until the next)"
    )
    add_broker(add)
    remove = add_command(verbs, "remove", _REMOVE, _remove, _REMOVE_MORE)
    remove.add_argument("name", metavar="NAME", help="what it is called")
    add_broker(remove)
    who = add_command(verbs, "who", _WHO, _who, _WHO_MORE)
    who.add_argument("--from", dest="source", required=True, metavar="SITE", help="where it begins")
    who.add_argument("--to", default="", metavar="SITE", help="the other end, where there is one")
    who.add_argument("--metric", default="rtt", help="what is measured (default: %(default)s)")
    who.add_argument(
        "--config", type=Path, metavar="FILE", help="read this adon.yml and do not ask the broker"
    )
    add_broker(who)


def _add_what(parser: CommandParser) -> None:
    parser.add_argument("--tool", help="tcp, udp, echo, ping, trace, host or command")
    parser.add_argument("--from", dest="source", metavar="AGENT", help="where it begins")
    parser.add_argument("--to", metavar="AGENT", help="the other end, where there is one")
    parser.add_argument(
        "--for", dest="lasts", metavar="TIME", help="how long (default: the tool's)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE",
        help="an option of the tool (docs/agents.md)",
    )  # fmt: skip


def _list(args: argparse.Namespace) -> int:
    found = client(args).call("GET", "/v1/tasks")
    return answered(
        args,
        "list of tasks",
        found,
        lambda: text.tasks(found, time.time()) if found else _NOTHING,
    )


def _agents(args: argparse.Namespace) -> int:
    found = client(args).call("GET", "/v1/agents")
    return answered(
        args,
        "list of agents",
        found,
        lambda: text.agents(found, time.time()) if found else _NOBODY,
    )


def _schedule(args: argparse.Namespace) -> int:
    from network_provisioner.client.http1 import quoted

    span_s, broker, now = parse_duration(args.span, "--for"), client(args), time.time()
    query = f"since={max(0.0, now - span_s):.3f}&until={now + span_s:.3f}"
    if args.task is not None:
        query += f"&task={quoted(args.task)}"
    found = broker.call("GET", "/v1/schedule")
    runs = broker.call("GET", f"/v1/runs?{query}")
    if args.task is not None and not runs["runs"]:
        with _named(broker, args.task):
            broker.call("GET", f"/v1/tasks/{quoted(args.task)}")
    return answered(
        args,
        "schedule",
        {"schedule": found, **runs},
        lambda: text.schedule(found, runs["runs"], runs["now"]),
    )


def _run(args: argparse.Namespace) -> int:
    from network_provisioner.client.http1 import quoted

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
    with bad_answer(args, "run"):
        planned = text.planned(run, time.time())
        key, until = str(run["id"]), float(run["until"])
    if args.no_wait:
        print_json(run) if args.json else print(planned)
        return 0
    if not args.json:
        print(planned, flush=True)
    while run["state"] == "planned" and time.time() < until + _GRACE_S:
        time.sleep(_LOOK_S)
        run = broker.call("GET", f"/v1/runs/{quoted(key)}")
    return _said(args, broker, run)


def _said(args: argparse.Namespace, broker: Any, run: dict[str, Any]) -> int:
    """Print what came of a run; an exit code."""
    from network_provisioner.client.http1 import quoted

    found, hidden = [], 0
    for metric in run.get("measured", []):
        try:
            key = quoted(f"{metric}:{run['id']}")
            found.append(broker.call("GET", f"/v1/measurements/by-id/{key}"))
        except BrokerError as error:
            if error.code != "unknown_measurement":
                raise
            hidden += 1  # who may start a measurement may not always see what it gives
    answered(
        args,
        "measurement",
        {**run, "measurements": found},
        lambda: text.results(run, found, hidden),
    )
    return 0 if run["state"] == "done" else 1


@contextmanager
def _named(broker: Any, wanted: str) -> Iterator[None]:
    """Where there is no task ``wanted``, it is refused with the name of one that might be meant.
    Raises BrokerError."""
    from network_provisioner.base.suggestions import meant

    try:
        yield
    except BrokerError as error:
        if error.code != "unknown_task":
            raise
        names = [str(task["name"]) for task in broker.call("GET", "/v1/tasks")]
        hint = meant(wanted, names, "'adon measure list' has all")
        raise BrokerError(f"{error}: {hint}", error.code) from None


def _add(args: argparse.Namespace) -> int:
    from network_provisioner.client.http1 import quoted

    body = {**_what(args), "every": args.every}
    if args.within is not None:
        body["within"] = args.within
    found = client(args).call("PUT", f"/v1/tasks/{quoted(args.name)}", body)
    return answered(args, "task", found, lambda: text.tasks([found], time.time()))


def _remove(args: argparse.Namespace) -> int:
    from network_provisioner.client.http1 import quoted

    broker = client(args)
    with _named(broker, args.name):
        found = broker.call("DELETE", f"/v1/tasks/{quoted(args.name)}")
    if args.json:
        print_json(found)
    else:
        print(f"{args.name} is measured no longer")
    return 0


def _who(args: argparse.Namespace) -> int:
    from network_provisioner.client.http1 import quoted

    if args.config is None:
        query = "&".join(
            f"{key}={quoted(value)}"
            for key, value in (("from", args.source), ("to", args.to), ("metric", args.metric))
            if value
        )
        found = client(args).call("GET", f"/v1/access?{query}")
        with bad_answer(args, "list of keys"):
            keys = found["keys"]
    else:
        keys = _configured(args)
    if args.json:
        print_json({"from": args.source, "to": args.to, "metric": args.metric, "keys": keys})
        return 0
    with bad_answer(args, "list of keys"):
        print(text.who(keys, args.source, args.to, args.metric))
    return 0


def _configured(args: argparse.Namespace) -> Any:
    """What adon.yml says. Raises InputError."""
    from adon.config.adon_yml import load_config
    from adon.config.security import keyring_of
    from monitors.measurements.task_data import known_end
    from monitors.rules import rules_from_list
    from network_provisioner.topology.data import topology_from_dict

    config = load_config(args.config)
    topology = topology_from_dict(config.topology)
    for option, end in (("--from", args.source), ("--to", args.to)):
        if end:
            known_end(end, option, topology)
    rules = rules_from_list(config.monitoring.access if config.monitoring else [], topology)
    keys = keyring_of(config).principals() or [ANYBODY]
    return rules.table(keys, [end for end in (args.source, args.to) if end], args.metric)


def _what(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say is measured. Raises InputError."""
    options: dict[str, Any] = {}
    for item in args.set:
        key, equal, value = item.partition("=")
        if not (key and equal):
            raise InputError(f"--set: found {item!r}, expected OPTION=VALUE")
        options[key] = int(value) if value.isdecimal() and len(value) < 19 else value
    given = {"tool": args.tool, "from": args.source, "to": args.to, "for": args.lasts}
    found = {key: value for key, value in given.items() if value is not None}
    return {**found, "options": options} if options else found
