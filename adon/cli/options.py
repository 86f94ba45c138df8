"""What options mean: instants and amounts as people write them, the broker that is asked, the
workflow that is placed."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from adon.cli.output import note
from network_provisioner.base.database_url import place
from network_provisioner.base.errors import InputError, printable_values
from network_provisioner.base.units import parse_duration

if TYPE_CHECKING:
    from pathlib import Path

    from adon.planning.placement import PlacedWorkflow, PlacementInputs
    from network_provisioner.base.flows import Flow
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.client.http1 import Tls
    from site_selector.estimates.world import World


# Unix seconds as programs print them, with a fraction or without.
_SECONDS = re.compile(r"\d+(\.\d*)?", re.ASCII)
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
TIMEOUT_S = 10.0  # a person waits longer than a hook may: installing a path can take seconds
OUTPUT_SITE = "local"


def instant_of(text: str | None, option: str, now: float) -> float | None:
    """Unix seconds from ISO 8601 (local without an offset), from Unix seconds, from ``14:00`` (the
    next), or from ``+2 h``, which counts from ``now``; None if nothing was said. Raises InputError.
    """
    if text is None:
        return None
    if text.startswith("+"):
        return now + parse_duration(text[1:], option)
    try:
        return _absolute(text, option, now, days=1)
    except InputError as error:
        raise InputError(f"{error}, or '+2 h' from now") from None


def _absolute(text: str, option: str, now: float, days: int) -> float:
    """``14:00`` is the next of these where ``days`` is 1, the last where it is -1."""
    from network_provisioner.base.instants import instant

    if match := _TIME_OF_DAY.fullmatch(text):
        today = datetime.fromtimestamp(now)
        moment = today.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        if (moment - today) * days < timedelta():
            moment += timedelta(days)
        return moment.timestamp()
    return instant(float(text) if _SECONDS.fullmatch(text) else text, option, local=True)


def moment_of(text: str | None, option: str, now: float) -> float | None:
    """The same, or how long before ``now`` as ``2 h``; ``14:00`` is the last. Raises InputError."""
    if text is None or text.startswith("+"):
        return instant_of(text, option, now)
    if not _SECONDS.fullmatch(text):  # no unit: these are no duration
        try:
            return now - parse_duration(text, option)
        except InputError:  # an instant, then, or neither
            pass
    try:
        return _absolute(text, option, now, days=-1)
    except InputError as error:
        raise InputError(f"{error}, or how long ago such as '2 h'") from None


def above_0(parse: Callable[[str, str], float], text: str | None, option: str) -> float | None:
    """What ``parse`` makes of a text, more than 0; None for None. Raises InputError."""
    if text is None:
        return None
    value = parse(text, option)
    if value <= 0:
        raise InputError(f"{option}: found {text!r}, expected more than 0")
    return value


def ports(texts: list[str], option: str) -> tuple[Flow, ...]:
    """``[src:][udp/]PORT[-PORT]`` as flows. Raises InputError."""
    from network_provisioner.base.flows import flow_from_dict

    flows = []
    for text in texts:
        side, _, rest = text.rpartition(":")
        protocol, _, ports = rest.rpartition("/")
        ends = ports.split("-")
        if side not in ("", "src", "dst") or not all(e.isdecimal() and len(e) < 6 for e in ends):
            raise InputError(
                f"{option}: found {text!r}, expected a port such as 2811, 50000-50063, src:2811 or "
                "udp/5000"
            )
        key = "src_ports" if side == "src" else "dst_ports"
        value = int(ends[0]) if len(ends) == 1 else [int(end) for end in ends]
        flows.append(flow_from_dict({"protocol": protocol or "tcp", key: value}, option))
    return tuple(flows)


def tool_options(texts: Sequence[str]) -> dict[str, Any]:
    """``OPTION=VALUE`` of ``--set``, whole numbers as such. Raises InputError."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equal, value = (part.strip() for part in text.partition("="))
        if not (name and equal):
            raise InputError(f"--set: found {text!r}, expected OPTION=VALUE")
        options[name] = int(value) if value.isdecimal() and len(value) < 19 else value
    return options


def client(args: argparse.Namespace) -> BrokerClient:
    """The broker that ``--broker`` names. Its answers hold what others wrote; all of it is
    printable unless it is shown as JSON or CSV. Raises InputError.
    """
    from network_provisioner.client.broker import BrokerClient

    class Shown(BrokerClient):
        def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
            return printable_values(super().call(method, path, body))

    raw = getattr(args, "json", False) or getattr(args, "csv", False)
    return (BrokerClient if raw else Shown)(args.broker, TIMEOUT_S, *credentials(args.token_file))


def credentials(token_file: Path | None = None) -> tuple[str | None, Tls]:
    """What a broker knows us by, and we it: of a file, else of the environment. Raises
    InputError."""
    from network_provisioner.client.credentials import from_environment, read_token

    token, tls = from_environment(os.environ)
    return (token if token_file is None else read_token(token_file)), tls


def place_workflow(args: argparse.Namespace, alternatives: bool = True) -> PlacedWorkflow:
    """The workflow that the options name, mapped with what they say is known. Raises InputError.

    ``alternatives=False`` leaves out terms and reasons.
    """
    from adon.planning.placement import place_files

    return place_files(placement_inputs(args), seed=args.seed, say=note, alternatives=alternatives)


def estimated_world(args: argparse.Namespace) -> World:
    """What is assumed of the sites of a workflow, which is not mapped, or of a site catalog alone.

    Raises InputError, also where the options name neither.
    """
    from adon.planning.placement import estimate_files

    return estimate_files(placement_inputs(args), note)


def placement_inputs(args: argparse.Namespace) -> PlacementInputs:
    """The files and options of :func:`adon.cli.parsing.add_inputs`."""
    from adon.planning.placement import PlacementInputs

    given = {field.name: getattr(args, field.name) for field in fields(PlacementInputs)}
    given["archive"] = args.archive and place(args.archive)
    return PlacementInputs(**{**given, "output_site": args.output_site or OUTPUT_SITE})
