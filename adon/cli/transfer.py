"""Tune transfers between sites; compare them with and without a path."""

from __future__ import annotations

import argparse
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.options import above_0, client
from adon.cli.output import Column, duration, note, print_fields, print_records
from adon.cli.parsing import TEMPLATE, Noun, add_broker, add_output, command_words, option, whole
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.base.units import bits, format_rate, format_size, parse_rate, parse_size

if TYPE_CHECKING:
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.templates.advice import HostTcp, PathFigures

NOUN = Noun("transfer", __doc__)
_ENDS = ("src", "dst")
_SITES = (option("src", "site that sends", "FROM"), option("dst", "site that receives", "TO"))
WITHOUT, WITH = "without", "with"
_SIGNIFICANT = 0.05
_PERMUTATIONS = 10_000


@NOUN.verb(
    "advise",
    *_SITES,
    option("--rate", "rate of the path (default: all that template and path allow)", "RATE"),
    TEMPLATE,
    add_broker,
    add_output,
)
def _advise(args: argparse.Namespace) -> int:
    """Show how to tune a transfer between two sites: streams, buffer, and the expected rate.

    The bottleneck is one of disk, host, window (the TCP buffers that both systems allow) and path.
    Limits of the systems at both ends are listed with the command that lifts them.

    Examples:
      adon transfer advise mu tacc
      adon transfer advise mu tacc --rate '1 Gb/s' --template soykb
    """
    from network_provisioner.templates.advice import advise

    rate_bps = above_0(parse_rate, args.rate, "--rate")
    answer = client(args).advice(args.src, args.dst, rate_bps, args.template)
    figures = _with_own(_figures(answer["figures"]), answer["hosts"])
    answer |= {"figures": asdict(figures), "advice": asdict(advise(figures))}
    return print_fields(args, answer, lambda: "\n".join(_lines(answer, figures, args.template)))


def _figures(details: dict[str, Any]) -> PathFigures:
    from network_provisioner.templates.advice import HostTcp, PathFigures, TriedSetting

    ends = {end: HostTcp(**details[end]) if details[end] else None for end in _ENDS}
    return PathFigures(
        **details | ends | {"tried": tuple(TriedSetting(**attempt) for attempt in details["tried"])}
    )


def _with_own(figures: PathFigures, hosts: list[list[str]]) -> PathFigures:
    """With what this machine allows, where it is the end of which no agent has said anything."""
    import psutil

    from monitors.archive.tuning import host_tcp
    from monitors.measurements.probes.hostload import tcp_limits

    here = {
        address.address for interface in psutil.net_if_addrs().values() for address in interface
    }
    limits = host_tcp(tcp_limits())
    for end, addresses in zip(_ENDS, hosts, strict=True):
        if getattr(figures, end) is None and limits and here & set(addresses):
            own: dict[str, Any] = {end: limits}
            figures = replace(figures, **own)
    return figures


def _lines(answer: dict[str, Any], figures: PathFigures, template: str) -> list[str]:
    from network_provisioner.templates.advice import advise, setting_text

    advice, service = advise(figures), answer["service"]
    rtt = duration(figures.rtt_s) + ("" if figures.measured else ", as the topology has it")
    tried = f", {len(figures.tried)} transfers" if figures.tried else ""
    lines = [
        f"advice      {setting_text(*advice.setting)}",
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
        given = setting_text(service["streams"] or 4, service["buffer_bytes"])
        lines.append(f"given now   {given}, {service['why']} ({template})")
    return lines


def _host(host: HostTcp | None) -> str:
    """What an end allows."""
    if host is None:
        return "unknown: measure 'host' with an agent there"
    sizes = f"tcp_rmem up to {format_size(host.rmem[2])}, tcp_wmem {format_size(host.wmem[2])}"
    core = (format_size(size) for size in (host.core_rmem_max, host.core_wmem_max))
    return f"{sizes}; programs may ask for {' and '.join(core)}; {host.congestion}"


@dataclass(frozen=True, slots=True)
class Spread:
    """Of some values: mean, standard deviation, least, three quartiles and most; ``iqr`` is from
    the first quartile to the third."""

    runs: int
    mean: float
    sd: float
    quartiles: tuple[float, ...]
    iqr: float


def spread_of(values: Sequence[float]) -> Spread:
    """Of one value at least."""
    from statistics import fmean, quantiles, stdev

    several = len(values) > 1
    low, middle, high = quantiles(values, method="inclusive") if several else [*values] * 3
    quartiles = (min(values), low, middle, high, max(values))
    sd = stdev(values) if several else 0.0
    return Spread(len(values), fmean(values), sd, quartiles, high - low)


def by_chance(first_sample: Sequence[float], other: Sequence[float]) -> float:
    """How often the means of two groups differ as much, were their values dealt out at random."""
    from random import Random

    dice, values, n = Random(0), [*first_sample, *other], len(first_sample)
    total, seen = sum(values), abs(sum(first_sample) / n - sum(other) / len(other))
    extreme = 1
    for _ in range(_PERMUTATIONS):
        dice.shuffle(values)
        first = sum(values[:n])
        extreme += abs(first / n - (total - first) / len(other)) >= seen * (1 - 1e-9)
    return extreme / (1 + _PERMUTATIONS)


def rounds(times: int) -> list[str]:
    """Which kind of run is next: of each two one is with a path, in random order."""
    from random import Random

    dice = Random(1)
    return [kind for _ in range(times) for kind in dice.sample((WITHOUT, WITH), 2)]


@NOUN.verb(
    "compare",
    *_SITES,
    option("--command", "command that makes one transfer", "WORDS", command_words, required=True),
    option("--times", "runs of each kind", "N", whole(1, 1000), default=100),
    option(
        "--size", "size of one transfer, such as '1 GB'; without it, times are compared", "SIZE"
    ),
    TEMPLATE,
    option("--plot", "write a drawing to this SVG file", "FILE", Path),
    add_broker,
    add_output,
)
def _compare(args: argparse.Namespace) -> int:
    """Run a transfer many times, with a path of its own and without one, and compare.

    Each round runs the command once without a path and once with one, in random order. p is the
    probability that random grouping yields means this far apart (permutation test); below 0.05, the
    difference is hardly chance. A run whose command fails, or that gets no path or loses it, is
    reported and left out.

    Example:
      adon transfer compare mu tacc --size '1 GB' --plot plot.svg \\
          --command 'globus-url-copy gsiftp://dtn.mu/data/genome gsiftp://dtn.tacc/scratch/genome'

    Exit codes: 0 compared; 1 no transfer of one kind succeeded; 2 could not run.
    """
    size = None if args.size is None else parse_size(args.size, "--size")
    if not args.command or size == 0:
        raise InputError(
            f"found --command {shlex.join(args.command)!r} and --size {args.size!r}, expected more"
        )
    broker = client(args)
    values: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    failures: list[dict[str, Any]] = []
    for number, kind in enumerate(rounds(args.times), 1):
        try:
            if kind == WITH:
                seconds = _with_path(args, size, args.command, broker)
            else:
                seconds = _timed(args.command)
        except _FailedError as error:
            failures.append({"run": number, "kind": kind, "why": str(error)})
            note(f"run {number}, {kind} a path: {error}")
        else:
            values[kind].append(seconds if size is None else bits(size) / seconds)
    if not all(values.values()):
        kind = WITH if values[WITHOUT] else WITHOUT
        note(f"no transfer {kind} a path succeeded; nothing to compare")
        return 1
    _tell(args, values, failures, "b/s" if size else "s")
    return 0


class _FailedError(AdonError):
    """A run that does not count, and why."""


def _timed(words: Sequence[str]) -> float:
    """Seconds that the command takes. Raises _FailedError, OSError if it cannot be run."""
    import subprocess

    started = time.monotonic()
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no output"]
        raise _FailedError(f"exit code {done.returncode}: {lines[-1]}")
    return seconds


def _with_path(
    args: argparse.Namespace, size: int | None, words: Sequence[str], broker: BrokerClient
) -> float:
    """The same on a path that is released afterwards, whatever happens."""
    import uuid

    from network_provisioner.base.model import ON_SWITCHES, TransitRequest, TransitState

    name = f"compare:{uuid.uuid4()}"
    try:
        request = TransitRequest(name, args.src, args.dst, size, template=args.template)
        transit = broker.request(request)
        if transit.state not in ON_SWITCHES:
            raise _FailedError(f"{transit.state}: {transit.reason}")
        seconds = _timed(words)
    except BaseException as error:
        with suppress(BrokerError):  # it may never have heard of it
            broker.release(name, outcome=str(error) or "interrupted")
        raise
    done = broker.release(name, size or 0, seconds, "success")
    if done.state is not TransitState.RELEASED:
        raise _FailedError(f"{done.state}: {done.reason}")
    return seconds


def _tell(
    args: argparse.Namespace,
    values: Mapping[str, Sequence[float]],
    failures: Sequence[Mapping[str, Any]],
    unit: str,
) -> None:
    """Print what was found, and draw it where that is asked for. Raises OSError."""
    spreads = {kind: spread_of(seconds) for kind, seconds in values.items()}
    p = by_chance(values[WITHOUT], values[WITH])
    change = spreads[WITH].mean / spreads[WITHOUT].mean - 1
    if args.plot is not None:
        args.plot.write_text(_plot(values, spreads, unit, p), encoding="utf-8")
    kinds = {k: {**asdict(s), "values": values[k]} for k, s in spreads.items()}
    document = {"unit": unit, **kinds, "change": change, "p": p, "failures": failures}
    failed = Counter(failure["kind"] for failure in failures)
    rows = [{"path": kind, **seconds, "failed": failed[kind]} for kind, seconds in kinds.items()]
    amount = partial(_amount, unit=unit)
    columns = [
        Column("path"),
        Column("runs", "runs>"),
        Column("mean", "mean>", amount),
        Column("sd", "sd>", amount),
        Column("quartiles.1", "quartile 1>", amount),
        Column("quartiles.2", "median>", amount),
        Column("quartiles.3", "quartile 3>", amount),
        Column("iqr", "IQR>", amount),
        Column("failed", "failed>"),
    ]
    more = "more than chance" if p < _SIGNIFICANT else "which may be chance"
    below = f"with a path: {change:+.1%} on average, {more} (p = {p:.2g})"
    print_records(args, columns, rows, document=document, text=lambda shown: f"{shown}\n{below}")


def _amount(value: float, unit: str) -> str:
    return format_rate(value) if unit == "b/s" else f"{value:.3g} s"


def _plot(
    values: Mapping[str, Sequence[float]], spreads: Mapping[str, Spread], unit: str, p: float
) -> str:
    """Boxes over quartiles, with all runs beside them."""
    from adon.dashboard.standalone import COLOURS, Panel, drawing

    most = 1.1 * max(map(max, values.values()))
    panel = Panel(90, 40, 310, 320, 2, most)
    names = [f"{kind} a path ({len(samples)} runs)" for kind, samples in values.items()]
    levels = [(most * n / 4, _amount(most * n / 4, unit)) for n in range(5)]
    panel.axes(f"{'Rate' if unit == 'b/s' else 'Time'} of a transfer; p = {p:.2g}", names, levels)
    for slot, (colour, kind) in enumerate(zip(COLOURS, values, strict=True)):
        panel.box(slot, spreads[kind].quartiles, colour)
        panel.dots([(slot + 0.38, value) for value in values[kind]], colour, 1.5)
    return drawing(430, 400, [panel])
