"""``adon measure list|schedule|agents|run|add|remove|who``: what is measured, by whom, and who may
say so."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adon.cli import measure_help as words
from adon.cli import measure_shown as text
from adon.cli.brokers import bad_answer, client
from adon.cli.output import print_json
from adon.cli.parsing import Nouns, Parser, add_broker, add_command

_NOTHING = "nothing is measured regularly: 'adon measure add' adds a task"
_NOBODY = "the broker knows no agent: they stand under monitoring.agents in its adon.yml"
_SHOWN_S = 600.0  # of the past and of what comes, where nothing else is said
_LOOK_S = 0.5
_GRACE_S = 60.0  # after a run's end for its result to come


def add_more(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add the verbs of ``adon measure`` that ask the broker."""
    add_broker(add_command(verbs, "list", words.LIST, _list, words.LIST_MORE))
    schedule = add_command(verbs, "schedule", words.SCHEDULE, _schedule, words.SCHEDULE_MORE)
    schedule.add_argument("--task", metavar="NAME", help="of one task only")
    schedule.add_argument(
        "--for", dest="span", default="10 min", metavar="TIME",
        help="how far back and ahead (default: %(default)s)",
    )  # fmt: skip
    add_broker(schedule)
    add_broker(add_command(verbs, "agents", words.AGENTS, _agents, words.AGENTS_MORE))
    run = add_command(verbs, "run", words.RUN, _run, words.RUN_MORE)
    run.add_argument("task", nargs="?", metavar="TASK", help="a task's name")
    _add_what(run)
    run.add_argument(
        "--within", default="10 min", metavar="TIME",
        help="how soon it has to be over (default: %(default)s, at most 1 h)",
    )  # fmt: skip
    run.add_argument("--no-wait", action="store_true", help="say when it will be, and end")
    add_broker(run)
    add = add_command(verbs, "add", words.ADD, _add, words.ADD_MORE)
    add.add_argument("name", metavar="NAME", help="what it is called")
    _add_what(add)
    add.add_argument("--every", required=True, metavar="TIME", help="how often")
    add.add_argument(
        "--within", metavar="TIME", help="how late it may be over (default: until the next)"
    )
    add_broker(add)
    remove = add_command(verbs, "remove", words.REMOVE, _remove, words.REMOVE_MORE)
    remove.add_argument("name", metavar="NAME", help="what it is called")
    add_broker(remove)
    who = add_command(verbs, "who", words.WHO, _who, words.WHO_MORE)
    who.add_argument("--from", dest="source", required=True, metavar="SITE", help="where it begins")
    who.add_argument("--to", default="", metavar="SITE", help="the other end, where there is one")
    who.add_argument("--metric", default="rtt", help="what is measured (default: %(default)s)")
    who.add_argument(
        "--config", type=Path, metavar="FILE", help="read this adon.yml and do not ask the broker"
    )
    add_broker(who)


def _add_what(parser: Parser) -> None:
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
    if args.json:
        print_json(found)
        return 0
    with bad_answer(args, "list of tasks"):
        print(text.tasks(found, time.time()) if found else _NOTHING)
    return 0


def _agents(args: argparse.Namespace) -> int:
    found = client(args).call("GET", "/v1/agents")
    if args.json:
        print_json(found)
        return 0
    with bad_answer(args, "list of agents"):
        print(text.agents(found, time.time()) if found else _NOBODY)
    return 0


def _schedule(args: argparse.Namespace) -> int:
    from network_provisioner.base.units import parse_duration
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
    if args.json:
        print_json({"schedule": found, **runs})
        return 0
    with bad_answer(args, "schedule"):
        print(text.schedule(found, runs["runs"], runs["now"]))
    return 0


def _run(args: argparse.Namespace) -> int:
    from network_provisioner.base.errors import InputError
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
    from network_provisioner.base.errors import BrokerError
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
    if args.json:
        print_json({**run, "measurements": found})
    else:
        with bad_answer(args, "measurement"):
            print(text.results(run, found, hidden))
    return 0 if run["state"] == "done" else 1


@contextmanager
def _named(broker: Any, wanted: str) -> Iterator[None]:
    """Where there is no task ``wanted``, it is refused with the name of one that might be meant.
    Raises BrokerError."""
    from network_provisioner.base.errors import BrokerError
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
    if args.json:
        print_json(found)
    else:
        with bad_answer(args, "task"):
            print(text.tasks([found], time.time()))
    return 0


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
    from network_provisioner.access import ANYBODY
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
    from network_provisioner.base.errors import InputError

    options: dict[str, Any] = {}
    for item in args.set:
        key, equal, value = item.partition("=")
        if not (key and equal):
            raise InputError(f"--set: found {item!r}, expected OPTION=VALUE")
        options[key] = int(value) if value.isdecimal() and len(value) < 19 else value
    given = {"tool": args.tool, "from": args.source, "to": args.to, "for": args.lasts}
    found = {key: value for key, value in given.items() if value is not None}
    return {**found, "options": options} if options else found
