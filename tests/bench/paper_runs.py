"""Measurements for the papers' figures, point by point, kept in ``.adon/papers/NAME.json``.

    python -m tests.bench.paper_runs soykb|sos [--most SECONDS]

A point that has been measured often enough is not measured again, so that a run may be stopped,
or given a time (``--most``), and continued. As root, in network namespaces of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean, stdev
from typing import Any

from adon.machine import packages
from tests.bench.bench_p12 import BUFFER, measuring, relayed
from tests.bench.bench_p12 import RATE_BPS as PATH_BPS
from tests.bench.bench_p14 import moving
from tests.bench.results import ROOT, commit, machine

FOLDER = ROOT / ".adon" / "papers"
TURNS = {"soykb": 3, "sos": 5}
_T95 = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
Point = Mapping[str, Any]

# --- the thesis on SoyKB: 10 Gb/s and 650 Mb/s there, both times 0.02 to 0.03 here --------------

LAYERS = {"L2": (200e6, 1_300_000, 60_000_000), "L3": (20e6, 130_000, 8_000_000)}
"""Rate in b/s, queue in bytes, and what is moved in bytes."""
BUFFERS = {megabytes: round(megabytes * 1e6 * 0.02) for megabytes in (16, 64, 256)}
"""The thesis's megabytes for 10 Gb/s, in bytes for 200 Mb/s."""
THREADS = (1, 2, 4, 8, 16)
SIZES = {5: 4_000_000, 15: 12_000_000, 25: 20_000_000}
"""The thesis's gigabytes, in bytes; alone on layer 2 five times as much, else all is slow start."""
_MOST_BUFFER = 1 << 23
OTHERS = 24  # streams that use layer 2, too


def soykb_points() -> dict[str, Point]:
    """Figures 19 to 24."""
    points: dict[str, Point] = {}
    for layer, (_, _, size) in LAYERS.items():
        for megabytes, buffer in BUFFERS.items():
            for streams in (1, 16):
                points[f"{layer}, {streams} streams, {megabytes} MB"] = path(
                    layer, size, streams, buffer
                )
    for streams in THREADS:
        for tool in ("gridftp", "irods"):
            points[f"{tool}, {streams} threads"] = path(
                "L2", LAYERS["L2"][2], streams, BUFFERS[16]
            ) | {"irods": tool == "irods"}
    for gigabytes, size in SIZES.items():
        for layer in LAYERS:
            moved = 5 * size if layer == "L2" else size
            points[f"{layer} alone, {gigabytes} GB"] = path(layer, moved, 1, _MOST_BUFFER)
        points[f"L2 beside others, {gigabytes} GB"] = path("L2", size, 1, _MOST_BUFFER) | {
            "beside": OTHERS
        }
    return points


def path(layer: str, size: int, streams: int, buffer_bytes: int) -> Point:
    """One transfer over a layer, whose hosts let a socket have so many bytes under way."""
    rate, queue, _ = LAYERS[layer]
    # The kernel keeps half of a socket's buffer for itself.
    windows = f"4096 65536 {2 * buffer_bytes}"
    return {
        "host": {f"net.ipv4.tcp_{name}": windows for name in ("rmem", "wmem")},
        "link": {"rate_bps": rate, "loss": 0.0, "limit_bytes": queue},
        "congestion": "cubic",
        "bytes": size,
        "streams": streams,
        "buffer_bytes": 0,
    }


@contextmanager
def soykb() -> Iterator[Callable[[Point], float]]:
    """GridFTP, or the plug-in for iRODS, over one path: b/s."""
    with moving(print) as move:
        yield move


# --- Steroid OpenFlow Service: 10 Gb/s and 53 ms there, 500 Mb/s and 53 ms here -----------------

STREAMS = (1, 2, 4, 8, 16, 32, 64)
RELAY_BUFFERS = (BUFFER // 4, BUFFER // 2, BUFFER)
_SHARE = 0.25  # of what is under way on the path, a socket's buffer in the thesis: 16.7 of 66 MB
_IN_FLIGHT = PATH_BPS / 8 * 0.053


def sos_points() -> dict[str, Point]:
    """Tables 4.3.1 to 4.3.3: by GridFTP, and by GridFTP with one stream over the relay, disk to
    disk."""
    common = {
        "disk": True, "bytes": 60_000_000, "loss": 0.0, "way": "gridftp", "buffer_bytes": 0,
        "windows": round(2 * _SHARE * _IN_FLIGHT),
    }  # fmt: skip
    points: dict[str, Point] = {}
    for n in STREAMS:
        points[f"GridFTP, {n}"] = common | {"relay": None, "streams": n}
        points[f"relay, {n}"] = relayed(n, "cubic") | common | {"streams": 1}
    points["relay, bbr"] = relayed() | common | {"streams": 1}
    for buffer in RELAY_BUFFERS[:-1]:
        points[f"relay, 64, {buffer}"] = (
            relayed(64, "cubic", "gridftp", buffer) | common | {"streams": 1}
        )
    return points


@contextmanager
def sos() -> Iterator[Callable[[Point], float]]:
    """Over the relays' path: b/s."""
    tools = {name: packages.ensure(name, progress=print) / "wrap" for name in ("gridftp", "socat")}
    packages.ensure("nftables", progress=print)
    tools["socat"] /= "socat"
    with measuring(tools) as measure:
        yield lambda point: float(measure(dict(point))["bps"])


# --- what was measured --------------------------------------------------------------------------


def load(name: str) -> dict[str, list[float]]:
    """Rates by point; none where nothing is measured yet."""
    try:
        rates: dict[str, list[float]] = json.loads((FOLDER / f"{name}.json").read_text())["rates"]
    except FileNotFoundError:
        return {}
    return rates


def bounds(rates: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its interval of 95 % (Student's t); 0 for less than three runs."""
    if len(rates) < 3:
        return fmean(rates), 0.0
    return fmean(rates), _T95.get(len(rates), 2.3) * stdev(rates) / len(rates) ** 0.5


def whole(name: str) -> bool:
    """Whether each point has been measured often enough."""
    rates = load(name)
    return all(len(rates.get(key, ())) >= TURNS[name] for key in KINDS[name][0]())


def measure_missing(name: str, most_s: float) -> None:
    """Measures what is missing, in turns, for so many seconds."""
    points, box = KINDS[name]
    began, rates = time.monotonic(), load(name)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with box() as measure:
        for turn in range(TURNS[name]):
            for key, point in points().items():
                if len(rates.setdefault(key, [])) > turn:
                    continue
                if time.monotonic() - began > most_s:
                    print(f"{name}: more to measure")
                    return
                rates[key].append(measure(point))
                print(f"{name}: {key}: {rates[key][-1] / 1e6:.1f} Mb/s", flush=True)
                kept = {"commit": commit(), "machine": machine(), "rates": rates}
                file = FOLDER / f"{name}.json"
                draft = file.with_suffix(".draft")
                draft.write_text(json.dumps(kept, indent=1) + "\n")
                draft.replace(file)


KINDS: Mapping[str, tuple[Callable[[], dict[str, Point]], Callable[[], Any]]] = {
    "soykb": (soykb_points, soykb),
    "sos": (sos_points, sos),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, also where there is more to measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.paper_runs", description=__doc__)
    parser.add_argument("name", choices=tuple(KINDS))
    parser.add_argument("--most", type=float, default=1200.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    measure_missing(options.name, options.most)
    return 0


if __name__ == "__main__":
    sys.exit(main())
