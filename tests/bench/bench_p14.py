"""P14: streams and buffers that the adviser chooses, beside fixed ones and the best of a sweep.

One file of 60 MB by GridFTP from server to server over 200 Mb/s and 53 ms, where queues are long or
short, windows large or small, packets lost or not. The sweep measures 1 to 64 streams with four
buffers once each, and its best three again, for the largest of 28 single figures is a lucky one.
The best of these is then measured beside the adviser's setting and the fixed ones, by turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from adon.machine import box, packages
from monitors.archive.tuning import host_tcp
from monitors.measurements.probes.hostload import tcp_limits
from network_provisioner.templates.advice import PathFigures, advise, setting_text
from tests.bench import Figure, Tell, bench

ROOT = Path(__file__).resolve().parents[2]
RATE_BPS, RTT_S, SIZE = 200e6, 0.053, 60_000_000
STREAMS, BUFFERS = (1, 2, 4, 8, 16, 32, 64), (0, 1 << 18, 1 << 20, 1 << 22)
AGAIN, BEST, BEST_AGAIN = 7, 3, 3
FIXED = {
    "default: 1 stream": (1, 0),
    "4 streams": (4, 0),
    "16 streams": (16, 0),
    "64 streams": (64, 0),
}
Setting = tuple[int, int]
Measure = Callable[[Setting], float]


@dataclass(frozen=True, slots=True)
class Scene:
    """A path: the largest buffers that its hosts' own tuning gives, its queue, its loss."""

    name: str
    buffer_bytes: int = 1 << 25
    queue_bytes: int = 1_300_000
    loss: float = 0.0

    @property
    def host(self) -> dict[str, list[int]]:
        """The hosts' tcp_rmem and tcp_wmem."""
        return {name: [4096, 65_536, self.buffer_bytes] for name in ("rmem", "wmem")}


SCENES = (
    Scene("a queue of 52 ms"),
    Scene("a queue of 10 ms", queue_bytes=250_000),
    Scene("windows of 256 KiB", buffer_bytes=1 << 19),
    Scene("0.05 % loss", loss=5e-4),
)


@bench("P14")
def tuned_transfers(tell: Tell) -> Iterable[Figure]:
    """About half an hour; as root, in network namespaces of its own."""
    reason = box.can_box()
    if reason is not None:
        tell(f"not measured: it needs root and network namespaces of its own ({reason})")
        return
    with _measuring(tell) as measure_on:
        for scene in SCENES:
            yield compared(scene, measure_on(scene), tell)


def compared(scene: Scene, measure: Measure, tell: Tell) -> Figure:
    """What the adviser's setting reaches of the best that is known on a path."""
    host = host_tcp({**tcp_limits(), **scene.host, "congestion": "cubic"})
    advice = advise(PathFigures(RATE_BPS, RTT_S, scene.loss, host, host), SIZE)
    swept = {(n, size): measure((n, size)) for size in BUFFERS for n in STREAMS}
    for size in BUFFERS:
        row = " ".join(f"{swept[n, size] / 1e6:.0f}" for n in STREAMS)
        tell(f"{scene.name}, buffer {size >> 10} KiB, {STREAMS} streams: {row} Mb/s")
    first = repeated(sorted(swept, key=swept.__getitem__)[-BEST:], BEST_AGAIN, measure)
    best = max(first, key=first.__getitem__)
    rates = repeated([advice.setting, *FIXED.values(), best], AGAIN, measure)
    tell(f"{scene.name}: {_shown(first)}; {advice}, {_shown(rates)}")
    return figure(scene, advice.setting, best, rates)


def repeated(settings: Sequence[Setting], times: int, measure: Measure) -> dict[Setting, float]:
    """The median rate of each, measured by turns."""
    rates_by_setting: dict[Setting, list[float]] = {setting: [] for setting in settings}
    for _ in range(times):
        for setting, rates in rates_by_setting.items():
            rates.append(measure(setting))
    return {setting: median(rates) for setting, rates in rates_by_setting.items()}


def figure(scene: Scene, advised: Setting, best: Setting, rates: Mapping[Setting, float]) -> Figure:
    """Shares of the sweep's best."""
    share = {setting: 100 * rate / rates[best] for setting, rate in rates.items()}
    return Figure(
        f"{scene.name}: {setting_text(*advised)}, of the sweep's best ({setting_text(*best)})",
        share[advised],
        "%",
        better="higher",
        goal=95.0,
        peers={name: share[setting] for name, setting in FIXED.items()},
    )


@contextmanager
def _measuring(tell: Tell) -> Iterator[Callable[[Scene], Measure]]:
    with moving(tell) as move:

        def measure(scene: Scene, setting: Setting) -> float:
            sizes = {
                f"net.ipv4.tcp_{name}": " ".join(map(str, size))
                for name, size in scene.host.items()
            }
            link = {"rate_bps": RATE_BPS, "loss": scene.loss, "limit_bytes": scene.queue_bytes}
            request = {"host": sizes, "link": link, "congestion": "cubic", "bytes": SIZE}
            return move(request | {"streams": setting[0], "buffer_bytes": setting[1]})

        yield lambda scene: lambda setting: measure(scene, setting)


@contextmanager
def moving(tell: Tell) -> Iterator[Callable[[Mapping[str, Any]], float]]:
    """Moves a file in a box as tests.bench.streams_inside is asked to, b/s."""
    # Downloads need the host's network, so before the box is made.
    programs = str(packages.ensure("gridftp", progress=tell) / "wrap")
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as folder:
        command = [sys.executable, "-m", "tests.bench.streams_inside", programs, folder]
        with subprocess.Popen(
            [*box.command(), *command], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        ) as inside:
            assert inside.stdin and inside.stdout
            into, out = inside.stdin, inside.stdout

            def move(request: Mapping[str, Any]) -> float:
                into.write(f"{json.dumps(request)}\n")
                into.flush()
                return float(json.loads(out.readline())["bps"])

            yield move
            into.close()


def _shown(rates: Mapping[Setting, float]) -> str:
    return ", ".join(
        f"{setting_text(*setting)} {rate / 1e6:.0f} Mb/s" for setting, rate in rates.items()
    )
