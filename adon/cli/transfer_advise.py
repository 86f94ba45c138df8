"""``adon transfer advise``: streams and buffer for a path, and what is in the way."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from adon.cli.options import above_0, bad_answer, client
from adon.cli.output import duration, print_json
from adon.cli.parsing import Nouns, add_broker, add_command
from network_provisioner.base.units import format_rate, format_size, parse_rate

if TYPE_CHECKING:
    from network_provisioner.templates.advice import HostTcp, PathFigures

_ADVISE = """Say how a transfer between two sites is tuned best: streams, buffer, and the rate to
expect.

The bottleneck is one of disk, host, window (what the systems at both ends allow TCP) and path.
Whatever is in the way at the ends is listed with the command that lifts it.
"""
_MORE = """
Examples:
  adon transfer advise mu tacc
  adon transfer advise mu tacc --rate '1 Gb/s' --template soykb
"""
_ENDS = ("src", "dst")


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon transfer advise``."""
    parser = add_command(verbs, "advise", _ADVISE, _run, _MORE)
    parser.add_argument("src", metavar="SRC", help="site where the data is")
    parser.add_argument("dst", metavar="DST", help="site where it goes")
    parser.add_argument("--rate", help="of the path (default: all that template and path allow)")
    parser.add_argument(
        "--template", metavar="NAME", default="default", help="by name (default: %(default)s)"
    )
    add_broker(parser)


def _run(args: argparse.Namespace) -> int:
    from network_provisioner.templates.advice import advise

    rate_bps = above_0(parse_rate, args.rate, "--rate")
    answer = client(args).advice(args.src, args.dst, rate_bps, args.template)
    with bad_answer(args, "advice"):
        figures = _with_own(_figures(answer["figures"]), answer["hosts"])
        answer |= {"figures": asdict(figures), "advice": asdict(advise(figures))}
        if args.json:
            print_json(answer)
            return 0
        for line in _lines(answer, figures, args.template):
            print(line)
    return 0


def _figures(told: dict[str, Any]) -> PathFigures:
    from network_provisioner.templates.advice import HostTcp, PathFigures, Tried

    ends = {end: HostTcp(**told[end]) if told[end] else None for end in _ENDS}
    return PathFigures(**told | ends | {"tried": tuple(Tried(**one) for one in told["tried"])})


def _with_own(figures: PathFigures, hosts: list[list[str]]) -> PathFigures:
    """With what this machine allows, where it is the end of which no agent has said anything."""
    import psutil

    from monitors.archive.tuning import host_tcp
    from monitors.measurements.probes.hostload import tcp_limits

    here = {address.address for found in psutil.net_if_addrs().values() for address in found}
    limits = host_tcp(tcp_limits())
    for end, addresses in zip(_ENDS, hosts, strict=True):
        if getattr(figures, end) is None and limits and here & set(addresses):
            own: dict[str, Any] = {end: limits}
            figures = replace(figures, **own)
    return figures


def _lines(answer: dict[str, Any], figures: PathFigures, template: str) -> list[str]:
    from network_provisioner.templates.advice import advise, words

    advice, service = advise(figures), answer["service"]
    rtt = duration(figures.rtt_s) + ("" if figures.measured else ", as the topology has it")
    tried = f", {len(figures.tried)} transfers" if figures.tried else ""
    found = [
        f"advice      {words(*advice.setting)}",
        f"expected    {format_rate(advice.expected_bps)}",
        f"bottleneck  {advice.bottleneck}",
        f"why         {advice.why}",
        f"path        {'-'.join(answer['path'])}: {format_rate(figures.rate_bps)}, {rtt}, "
        f"loss {figures.loss:.2g}{tried}",
        *(f"{end:<11} {_host(getattr(figures, key))}" for end, key in zip(
            ("source", "destination"), _ENDS, strict=True)),
        *(f"in the way  {line}" for line in advice.limits),
    ]  # fmt: skip
    if service["why"] != answer["advice"]["why"] and service["streams"] | service["buffer_bytes"]:
        given = words(service["streams"] or 4, service["buffer_bytes"])
        found.append(f"given now   {given}, {service['why']} ({template})")
    return found


def _host(host: HostTcp | None) -> str:
    """What an end allows."""
    if host is None:
        return "not known: an agent there that measures 'host' tells it"
    sizes = f"tcp_rmem up to {format_size(host.rmem[2])}, tcp_wmem {format_size(host.wmem[2])}"
    core = (format_size(size) for size in (host.core_rmem_max, host.core_wmem_max))
    return f"{sizes}; programs may ask for {' and '.join(core)}; {host.congestion}"
