"""``adon transfer compare``: the same transfer with a path of its own and without, many times."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.options import above_0, client, note
from adon.cli.output import print_json, table
from adon.cli.parsing import Nouns, add_broker, add_command, whole
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.base.units import bits, format_rate, parse_rate, parse_size

if TYPE_CHECKING:
    from network_provisioner.client.broker import BrokerClient

_COMPARE = """Run a transfer many times with a path of its own and without, and compare.

Each round runs the command once without a path, and once with one between the two sites, in random
order. The two means differ by more than chance where p is below 0.05: so often would labels that
are dealt out anew give a difference as large (permutation test). With --size the rate is compared,
else the time. A run whose command fails, or that got no path or lost it, is counted and left out.
"""
_COMPARE_MORE = """
Examples:
  adon transfer compare mu tacc --size '1 GB' --out plot.svg \\
      --command 'globus-url-copy gsiftp://dtn.mu/data/genome gsiftp://dtn.tacc/scratch/genome'
  adon transfer compare mu tacc --command './copy.sh' --times 20 --min '100 Mb/s' --json

Exit codes: 0 compared; 1 no transfer of one kind succeeded; 2 could not run as asked.
"""
WITHOUT, WITH = "without", "with"
SIGNIFICANT = 0.05
_PERMUTATIONS = 10_000
_WIDTH, _HEIGHT, _GAP = 420.0, 320.0, 70.0


@dataclass(frozen=True, slots=True)
class Spread:
    """What runs of one kind gave: ``mean``, standard deviation ``sd`` and ``quartiles``, from the
    least to the most; ``iqr`` is between the first and the third quartile."""

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


def by_chance(one: Sequence[float], other: Sequence[float], seed: int = 0) -> float:
    """How often the means of two groups differ as much, were their values dealt out at random."""
    from random import Random

    dice, values, n = Random(seed), [*one, *other], len(one)
    total, seen = sum(values), abs(sum(one) / n - sum(other) / len(other))

    def differs() -> bool:
        dice.shuffle(values)
        first = sum(values[:n])
        return abs(first / n - (total - first) / (len(values) - n)) >= seen * (1 - 1e-9)

    return (1 + sum(differs() for _ in range(_PERMUTATIONS))) / (1 + _PERMUTATIONS)


def rounds(times: int, seed: int) -> list[str]:
    """Which kind of run is next: of each two one is with a path, in random order."""
    from random import Random

    dice = Random(seed)
    return [kind for _ in range(times) for kind in dice.sample((WITHOUT, WITH), 2)]


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    compare = add_command(verbs, "compare", _COMPARE, _compare, _COMPARE_MORE)
    compare.add_argument("src", metavar="FROM", help="site that sends")
    compare.add_argument("dst", metavar="TO", help="site that receives")
    compare.add_argument("--command", metavar="WORDS", required=True, help="makes one transfer")
    compare.add_argument(
        "--times", type=whole(1, 10_000), default=100, metavar="N",
        help="runs of each kind (default: %(default)s)",
    )  # fmt: skip
    compare.add_argument("--size", help="bytes that a run moves, such as '1 GB'")
    compare.add_argument(
        "--min", metavar="RATE", help="least bandwidth of the path (default: the template's)"
    )
    compare.add_argument(
        "--template", metavar="NAME", default="default",
        help="what the application needs, by name in adon.yml (default: %(default)s)",
    )  # fmt: skip
    compare.add_argument(
        "--seed", type=whole(0, 2**31 - 1), default=1, metavar="N",
        help="of the order (default: %(default)s)",
    )  # fmt: skip
    compare.add_argument("--out", type=Path, metavar="FILE.svg", help="draw it into this file")
    add_broker(compare)


def _compare(args: argparse.Namespace) -> int:
    import shlex

    words = shlex.split(args.command)
    if not words:
        raise InputError("--command: found nothing, expected a command")
    size = _size(args)
    broker = client(args)
    broker.health()
    kinds: Mapping[str, Callable[[], float]] = {
        WITHOUT: lambda: _timed(words),
        WITH: lambda: _with_path(args, words, broker),
    }
    values: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    failures: list[dict[str, Any]] = []
    for number, kind in enumerate(rounds(args.times, args.seed), 1):
        try:
            seconds = kinds[kind]()
        except _FailedError as error:
            failures.append({"run": number, "kind": kind, "why": str(error)})
            note(f"run {number}, {kind} a path: {error}")
        else:
            values[kind].append(seconds if size is None else bits(size) / seconds)
    if not all(values.values()):
        kind = WITH if values[WITHOUT] else WITHOUT
        note(f"no transfer {kind} a path succeeded; nothing to compare")
        return 1
    _tell(args, values, failures, "seconds" if size is None else "b/s")
    return 0


def _size(args: argparse.Namespace) -> int | None:
    size = None if args.size is None else parse_size(args.size, "--size")
    if size == 0:
        raise InputError(f"--size: found {args.size!r}, expected more than 0")
    return size


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


def _with_path(args: argparse.Namespace, words: Sequence[str], broker: BrokerClient) -> float:
    """The same on a path that is given back afterwards, whatever happens."""
    import uuid

    from network_provisioner.base.model import ON_SWITCHES, TransitRequest, TransitState

    size = _size(args)
    request = TransitRequest(
        f"compare:{uuid.uuid4()}", args.src, args.dst, size,
        above_0(parse_rate, args.min, "--min"), template=args.template,
    )  # fmt: skip
    try:
        transit = broker.request(request)
        if transit.state not in ON_SWITCHES:
            raise _FailedError(f"{transit.state}: {transit.reason}")
        seconds = _timed(words)
    except BaseException as error:
        with suppress(BrokerError):  # it may never have heard of it
            broker.release(request.id, outcome=str(error) or "interrupted")
        raise
    done = broker.release(request.id, size or 0, seconds, "success")
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
    head = ("path", "runs>", "mean>", "sd>", "1st quartile>", "median>", "3rd quartile>", "IQR>",
            "failed>")  # fmt: skip
    print(table(head, rows))
    more = "more than chance" if p < SIGNIFICANT else "which may be chance"
    print(f"with a path: {change:+.1%} on average, {more} (p = {p:.2g})")


def _amount(value: float, unit: str) -> str:
    return format_rate(value) if unit == "b/s" else f"{value:.3g} s"


def _plot(
    values: Mapping[str, Sequence[float]], spreads: Mapping[str, Spread], unit: str, p: float
) -> str:
    """Boxes over quartiles, with all runs beside them."""
    from adon.dashboard.plots import COLOURS, Panel, drawing

    most = 1.1 * max(map(max, values.values()))
    panel = Panel(_GAP, 40, _WIDTH - 1.5 * _GAP, _HEIGHT, 2, most)
    names = [f"{kind} a path ({len(found)} runs)" for kind, found in values.items()]
    levels = [(most * n / 4, _amount(most * n / 4, unit)) for n in range(5)]
    what = "Rate" if unit == "b/s" else "Time"
    panel.axes(f"{what} of a transfer; p = {p:.2g}", names, levels)
    for slot, (colour, kind) in enumerate(zip(COLOURS, values, strict=True)):
        panel.box(slot, spreads[kind].quartiles, colour)
        panel.dots([(slot + 0.38, value) for value in values[kind]], colour, 1.5)
    return drawing(_WIDTH, _HEIGHT + 80, [panel])
