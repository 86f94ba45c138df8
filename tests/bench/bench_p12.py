"""P12: one connection of an unmodified client over a relay, beside other ways to fill a path.

500 Mb/s and 53 ms, a queue of 48 ms; end hosts with windows of 256 KiB and cubic; packets lost or
not. All ways move 100 MB by turns, the fast ones 1 GB, too. What is below 45 Mb/s with 20 MB is
measured with these alone, once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from adon.dashboard.standalone import COLOURS, Panel, drawing
from adon.machine import box, packages
from adon.machine.cached import cache_root, make_once
from network_provisioner.base.errors import MissingError
from tests.bench import Figure, Tell, bench, percentiles

ROOT = Path(__file__).resolve().parents[2]
RATE_BPS, BUFFER = 500e6, 13_200_000  # four times what is under way
LOSSES = {"no loss": 0.0, "0.01 % loss": 1e-4, "0.1 % loss": 1e-3}
LARGE, SMALL, SOME, LITTLE = 10**9, 10**8, 5 * 10**7, 2 * 10**7
SLOW_BPS, FAST_BPS = 45e6, 250e6
OURS_SMALL, OURS_LARGE, TURNS = 6, 3, 2
STREAMS, BUFFERS = (1, 4, 16, 64), (BUFFER // 4, BUFFER // 2, BUFFER)
TABLE_LOSS = "0.01 % loss"
SWEEP, GRIDFTP_BUFFERS = (1, 4, 8, 16, 32), (1 << 16, 1 << 18, 0)
AGGLIGATOR = "0.18.12"
IDLE = 1000
SETUPS, TLS_TURNS, SOME_MORE = 40, 4, 400_000_000
PLOT = Path("bench-p12.svg")

Way = dict[str, Any]
Measure = Callable[[Way], dict[str, Any]]


def relayed(
    streams: int = 1, congestion: str = "bbr", way: str = "http", buffer_bytes: int = BUFFER
) -> Way:
    """Over the relay. A chunk that is larger than its stream's buffer would hold up all others."""
    relay = {"streams": streams, "congestion": congestion, "buffer_bytes": buffer_bytes}
    relay |= {"rate_bps": RATE_BPS, "chunk_bytes": min(1 << 18, buffer_bytes // streams // 4)}
    return {"way": way, "relay": relay, "streams": 1, "buffer_bytes": 0}


def gridftp(streams: int, buffer_bytes: int = 0) -> Way:
    """By globus-url-copy, without a relay."""
    return {"way": "gridftp", "relay": None, "streams": streams, "buffer_bytes": buffer_bytes}


OURS = "relay, one bbr stream"
PEERS = {
    "relay, one cubic stream": relayed(1, "cubic"),
    **{f"relay, {n} cubic streams": relayed(n, "cubic") for n in (4, 16, 64)},
    "no relay": {"way": "http", "relay": None},
    "socat near the client": {"way": "socat", "relay": None},
    "MPTCP": {"way": "mptcp", "relay": None},
}
TUNNEL = {"aggligator's tunnel, 8 links": {"way": "aggligator", "relay": None}}
CLIENTS = {
    "curl, FTP": relayed(way="ftp"),
    "globus-url-copy -p 1": relayed(way="gridftp"),
    "globus-url-copy -p 4": relayed(way="gridftp") | {"streams": 4},
}


@bench("P12")
def relay(tell: Tell) -> Iterable[Figure]:
    """About a quarter of an hour; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    tools = {name: packages.ensure(name, progress=tell) / "wrap" for name in ("gridftp", "socat")}
    packages.ensure("nftables", progress=tell)  # which the agents use
    tools["socat"] /= "socat"
    try:
        tools["aggligator"] = aggligator(tell)
    except (MissingError, OSError, subprocess.CalledProcessError) as error:
        tell(f"aggligator's tunnel is not measured: {error}")
    with measuring(tools) as measure:
        peers = PEERS | (TUNNEL if "aggligator" in tools else {})
        for words, loss in LOSSES.items():
            yield from compared(words, peers, lambda way, p=loss: measure(way | {"loss": p}), tell)
        table(lambda way: measure(way | {"loss": LOSSES[TABLE_LOSS]}), tell)
        disk = measure(relayed(way="disk") | {"bytes": LARGE, "loss": 0.0})
        yield share("1 GB by curl, disk to disk", {OURS: [disk]}, OURS)
        memory = measure({"idle": IDLE})
        tell(f"an agent: {memory}")
        yield Figure(
            f"memory of an agent with {IDLE:,} idle connections", memory["after"] / 1e6, "MB",
            "lower", 100.0, {"without any": memory["before"] / 1e6},
        )  # fmt: skip


@bench("P12")
def what_a_relay_costs(tell: Tell) -> Iterable[Figure]:
    """Two minutes; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    tools = {name: packages.ensure(name, progress=tell) / "wrap" for name in ("gridftp", "socat")}
    packages.ensure("nftables", progress=tell)
    tools["socat"] /= "socat"
    with measuring(tools) as measure:
        seconds = measure({"setups": SETUPS})["seconds"]
        direct = measure({"setups": SETUPS, "relay": None})["seconds"]
        yield from percentiles("from connecting to the first byte of an answer", "s", seconds,
                               {"no relay": direct}, high=0.95, goal=1.0)  # fmt: skip
        ways = {"plain": relayed(), "TLS": relayed()}
        ways["TLS"]["relay"]["tls"] = True
        by_way: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for _ in range(TLS_TURNS):
            for name, way in ways.items():
                by_way[name].append(measure(way | {"bytes": SOME_MORE, "loss": 0.0}))
    rates = {name: _typical(runs) for name, runs in by_way.items()}
    tell(f"{ {name: [round(run['bps'] / 1e6) for run in runs] for name, runs in by_way.items()} }")
    yield Figure("rate with TLS between the agents, of that without", 100 * rates["TLS"]
                 / rates["plain"], "%", "higher", 95.0)  # fmt: skip
    gigabits = SOME_MORE * 8 / 1e9
    cpu = {name: fmean(run["cpu_s"] for run in runs) / gigabits for name, runs in by_way.items()}
    yield Figure("both agents", cpu["plain"], "CPU s/Gb", "lower", None, {"with TLS": cpu["TLS"]})


def compared(
    words: str, others: Mapping[str, Way], measure: Measure, tell: Tell
) -> Iterator[Figure]:
    """All ways over a path with so much loss."""

    def repeated(way: Way, size: int, times: int) -> list[dict[str, float]]:
        return [measure(way | {"bytes": size}) for _ in range(times)]

    swept = {n: _typical(repeated(gridftp(n), SOME if n > 1 else LITTLE, 1)) for n in SWEEP}
    best = max(swept, key=swept.__getitem__)
    tell(f"{words}, GridFTP by streams: {_rates(swept)}")
    ways = {OURS: relayed(), **others, f"GridFTP, {best} streams": gridftp(best)}
    small = {name: repeated(way, LITTLE, 1) for name, way in ways.items()}
    going = [name for name in ways if _slowest(small[name]) > SLOW_BPS]
    for name in going:
        small[name].clear()
    for name in going * TURNS + [OURS] * (OURS_SMALL - TURNS):
        small[name] += repeated(ways[name], SMALL, 1)
    fast = [name for name in going if name == OURS or _slowest(small[name]) > FAST_BPS]
    large = {n: repeated(ways[n], LARGE, OURS_LARGE if n == OURS else 1) for n in fast}
    for size, by_way in (("100 MB", small), ("1 GB", large)):
        yield share(f"{size} by curl, {words}", by_way, OURS)
        spreads = {n: _spread(runs) for n, runs in by_way.items() if len(runs) > 1}
        yield Figure(
            f"standard deviation of completion, {size}, {words}", spreads.pop(OURS), "% of mean",
            "lower", None, spreads,
        )  # fmt: skip
    cpu = {n: fmean(run["cpu_s"] for run in runs) / 8 for n, runs in large.items() if "relay" in n}
    yield Figure(f"both agents, {words}", cpu.pop(OURS), "CPU s/Gb", "lower", None, cpu)
    for name, way in CLIENTS.items():
        if words == TABLE_LOSS:
            yield share(f"1 GB by {name}, {words}", {name: repeated(way, LARGE, 1)}, name)


def share(words: str, by_way: Mapping[str, list[dict[str, float]]], ours: str) -> Figure:
    """Of the bottleneck, by the median of some runs."""
    shares = {name: 100 * _typical(runs) / RATE_BPS for name, runs in by_way.items()}
    return Figure(f"share of the path, {words}", shares.pop(ours), "%", "higher", 90.0, shares)


def table(measure: Measure, tell: Tell) -> None:
    """Streams by buffers: all of the relay's together, each of GridFTP's (0: the system's)."""
    panels = []
    kinds: list[tuple[str, tuple[int, ...], Callable[[int, int], Way]]] = [
        ("relay, buffers together", BUFFERS, lambda n, b: relayed(n, "cubic", "http", b)),
        ("GridFTP, buffers each", GRIDFTP_BUFFERS, gridftp),
    ]
    for place, (kind, buffers, make) in enumerate(kinds):
        panel = Panel(60 + 360 * place, 40, 320, 240, len(STREAMS), RATE_BPS)
        levels = [(n * 1e8, f"{100 * n} Mb/s") for n in range(6)]
        of = ", ".join(f"{b / 1e6:.3g}" for b in buffers)
        panel.axes(f"{kind}: {of} MB; {TABLE_LOSS}", [f"{n} streams" for n in STREAMS], levels)
        for buffer, colour in zip(buffers, (*COLOURS, "#222"), strict=True):
            rates = {}
            for n in STREAMS:
                size = LITTLE if n == 1 and kind.startswith("GridFTP") else SOME
                rates[n] = measure(make(n, buffer) | {"bytes": size})["bps"]
            panel.curve(enumerate(rates.values()), colour)
            tell(f"{kind}, {TABLE_LOSS}, {buffer >> 10} KiB: {_rates(rates)}")
        panels.append(panel)
    PLOT.write_text(drawing(760, 320, panels), encoding="utf-8")
    tell(f"{PLOT}: both, by streams")


def aggligator(tell: Tell) -> Path:
    """Its tunnel's program, built once (five minutes)."""
    home = cache_root() / f"aggligator-{AGGLIGATOR}"

    def build(work: Path) -> None:
        cargo = shutil.which("cargo")
        if cargo is None:
            raise MissingError("found no cargo")
        words = ["install", "aggligator-util", "--version", AGGLIGATOR, "--locked", "--quiet"]
        words += ["--no-default-features", "--root", "tree", "--target-dir", "target"]
        subprocess.run([cargo, *words], cwd=work, check=True)
        (work / "tree").rename(home)

    return make_once(home, "aggligator", 1_000_000_000, build, tell) / "bin" / "agg-tunnel"


@contextmanager
def measuring(tools: Mapping[str, Path]) -> Iterator[Measure]:
    """Asks the program in a box."""
    pipe = subprocess.PIPE
    temporary = partial(tempfile.TemporaryDirectory, prefix="adon-bench-")
    with temporary() as disk, temporary(dir="/dev/shm") as memory:
        words = [disk, memory, json.dumps({name: str(path) for name, path in tools.items()})]
        command = [*box.command(), sys.executable, "-m", "tests.bench.relay_inside", *words]
        with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as inside:
            assert inside.stdin and inside.stdout
            into, out = inside.stdin, inside.stdout

            def measure(way: Way) -> dict[str, Any]:
                into.write(f"{json.dumps(way)}\n")
                into.flush()
                result: dict[str, Any] = json.loads(out.readline())
                return result

            yield measure
            into.close()


def _typical(runs: Iterable[Mapping[str, float]]) -> float:
    return median(run["bps"] for run in runs)


def _slowest(runs: Iterable[Mapping[str, float]]) -> float:
    return min(run["bps"] for run in runs)


def _spread(runs: Iterable[Mapping[str, float]]) -> float:
    seconds = [1 / run["bps"] for run in runs]
    return 100 * stdev(seconds) / fmean(seconds)


def _rates(rates: Mapping[int, float]) -> str:
    return ", ".join(f"{n}: {rate / 1e6:.0f}" for n, rate in rates.items()) + " Mb/s"
