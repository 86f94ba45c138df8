"""``adon transfer compare``: the same transfer with a path of its own and without, many times."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.options import client, note
from adon.cli.output import print_json, table
from adon.cli.parsing import Nouns, add_broker, add_command, whole
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.base.units import bits, format_rate, parse_size

if TYPE_CHECKING:
    from network_provisioner.client.broker import BrokerClient

_COMPARE = """Run a transfer many times with a path of its own and without, and compare.

Each round runs the command once without a path, and once with one between the two sites, in random
order. With --size rates are compared, else times. p is how often runs that are dealt out at random
have means as far apart (permutation test); below 0.05 the difference is more than chance. A run
whose command fails, or that got no path or lost it, is counted, said and left out.
"""
_COMPARE_MORE = """
Example:
  adon transfer compare mu tacc --size '1 GB' --out plot.svg \\
      --command 'globus-url-copy gsiftp://dtn.mu/data/genome gsiftp://dtn.tacc/scratch/genome'

Exit codes: 0 compared; 1 no transfer of one kind succeeded; 2 could not run as asked.
"""
WITHOUT, WITH = "without", "with"
_SIGNIFICANT = 0.05
_PERMUTATIONS = 10_000


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


def by_chance(one: Sequence[float], other: Sequence[float]) -> float:
    """How often the means of two groups differ as much, were their values dealt out at random."""
    from random import Random

    dice, values, n = Random(0), [*one, *other], len(one)
    total, seen = sum(values), abs(sum(one) / n - sum(other) / len(other))
    found = 1
    for _ in range(_PERMUTATIONS):
        dice.shuffle(values)
        first = sum(values[:n])
        found += abs(first / n - (total - first) / len(other)) >= seen * (1 - 1e-9)
    return found / (1 + _PERMUTATIONS)


def rounds(times: int) -> list[str]:
    """Which kind of run is next: of each two one is with a path, in random order."""
    from random import Random

    dice = Random(1)
    return [kind for _ in range(times) for kind in dice.sample((WITHOUT, WITH), 2)]


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    compare = add_command(verbs, "compare", _COMPARE, _compare, _COMPARE_MORE)
    compare.add_argument("src", metavar="FROM", help="site that sends")
    compare.add_argument("dst", metavar="TO", help="site that receives")
    compare.add_argument("--command", metavar="WORDS", required=True, help="makes one transfer")
    compare.add_argument(
        "--times", type=whole(1, 1000), default=100, metavar="N",
        help="runs of each kind (default: %(default)s)",
    )  # fmt: skip
    compare.add_argument("--size", help="bytes that a run moves, such as '1 GB'")
    compare.add_argument(
        "--template", metavar="NAME", default="default",
        help="what the application needs, by name in adon.yml (default: %(default)s)",
    )  # fmt: skip
    compare.add_argument("--out", type=Path, metavar="FILE.svg", help="draw it into this file")
    add_broker(compare)


def _compare(args: argparse.Namespace) -> int:
    import shlex

    words = shlex.split(args.command)
    size = None if args.size is None else parse_size(args.size, "--size")
    if not words or size == 0:
        raise InputError(
            f"found --command {args.command!r} and --size {args.size!r}, expected more"
        )
    broker = client(args)
    values: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    failures: list[dict[str, Any]] = []
    for number, kind in enumerate(rounds(args.times), 1):
        try:
            seconds = _with_path(args, size, words, broker) if kind == WITH else _timed(words)
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
    """Seconds that the command takes. Raises _FailedError, OSError where it cannot be run."""
    import subprocess

    started = time.monotonic()
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it said nothing"]
        raise _FailedError(f"exit code {done.returncode}: {lines[-1]}")
    return seconds


def _with_path(
    args: argparse.Namespace, size: int | None, words: Sequence[str], broker: BrokerClient
) -> float:
    """The same on a path that is given back afterwards, whatever happens."""
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
    spreads = {kind: spread_of(found) for kind, found in values.items()}
    p = by_chance(values[WITHOUT], values[WITH])
    change = spreads[WITH].mean / spreads[WITHOUT].mean - 1
    if args.out is not None:
        args.out.write_text(_plot(values, spreads, unit, p), encoding="utf-8")
    if args.json:
        kinds = {k: {**asdict(s), "values": values[k]} for k, s in spreads.items()}
        print_json({"unit": unit, **kinds, "change": change, "p": p, "failures": failures})
        return
    rows = []
    for kind, s in spreads.items():
        amounts = [_amount(v, unit) for v in (s.mean, s.sd, *s.quartiles[1:4], s.iqr)]
        failed = sum(failure["kind"] == kind for failure in failures)
        rows.append((kind, str(s.runs), *amounts, str(failed)))
    head = ("path", "runs>", "mean>", "sd>", "quartile 1>", "median>", "quartile 3>", "IQR>",
            "failed>")  # fmt: skip
    print(table(head, rows))
    more = "more than chance" if p < _SIGNIFICANT else "which may be chance"
    print(f"with a path: {change:+.1%} on average, {more} (p = {p:.2g})")


def _amount(value: float, unit: str) -> str:
    return format_rate(value) if unit == "b/s" else f"{value:.3g} s"


def _plot(
    values: Mapping[str, Sequence[float]], spreads: Mapping[str, Spread], unit: str, p: float
) -> str:
    """Boxes over quartiles, with all runs beside them."""
    from adon.dashboard.plots import COLOURS, Panel, drawing

    most = 1.1 * max(map(max, values.values()))
    panel = Panel(90, 40, 310, 320, 2, most)
    names = [f"{kind} a path ({len(found)} runs)" for kind, found in values.items()]
    levels = [(most * n / 4, _amount(most * n / 4, unit)) for n in range(5)]
    panel.axes(f"{'Rate' if unit == 'b/s' else 'Time'} of a transfer; p = {p:.2g}", names, levels)
    for slot, (colour, kind) in enumerate(zip(COLOURS, values, strict=True)):
        panel.box(slot, spreads[kind].quartiles, colour)
        panel.dots([(slot + 0.38, value) for value in values[kind]], colour, 1.5)
    return drawing(430, 400, [panel])
