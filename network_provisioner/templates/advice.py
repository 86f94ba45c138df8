"""How a transfer over a path is tuned: streams, their buffer, what to expect of them. Pure.

    window    what one stream has under way in a round trip: half of the largest buffer to which the
              system's own tuning goes, or the buffer that is asked for, up to net.core's limits
    loss      what it has under way where packets are lost: Mathis et al. (1997) for reno, the
              response function of RFC 9438 for cubic, no bound for bbr
    rate(n)   min(path, n · window / RTT, n · loss / RTT); less where all windows together overfill
              the path's queue, so that streams back off; and less where each has so few segments
              under way that it waits for timers when one is lost
    time(n)   bytes / rate(n), without loss until each stream's first is due; + slow start and a
              back-off at its end, both shorter for each of many streams; + n hand-shakes

The fewest streams are taken that are about as fast as any: past the peak more are slower (SOS
thesis, Table 4.3.1). What transfers reached goes before the model, and what they are tuned with is
varied now and then, so that there is something to learn from.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from network_provisioner.base.units import bytes_of, format_rate, format_size, transfer_time

STREAMS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
ENOUGH = 3  # transfers with a setting, before it is judged by them
ONE_IN = 10  # transfers, of which one at most tries another setting
_USUAL_BYTES = 10**8  # of a transfer whose size nobody knows
_LEAST_BUFFER = 1 << 17
_MSS_BYTES = 1448
_FIRST_BYTES = 10 * _MSS_BYTES  # RFC 6928
_LEAST_SHARE = 8  # segments under way: fewer do not bring three duplicate acknowledgements
_STREAM_S = 0.01  # of both ends' processors, for each stream
_BACK_OFF, _GROWTH = 0.3, 0.4  # RFC 9438: 1 - beta of cubic, and C in segments per cubic second
_AS_GOOD, _BETTER, _WORTH = 0.96, 1.05, 1.1
_HEADROOM, _OVERFULL = 1.25, 2.0  # of all windows over what is under way
_BUSY = 0.9


@dataclass(frozen=True, slots=True)
class HostTcp:
    """What an operating system allows its TCP connections; Linux's defaults. ``rmem`` and ``wmem``
    are net.ipv4.tcp_rmem and tcp_wmem, ``core_rmem_max`` and ``core_wmem_max`` those of net.core,
    all in bytes."""

    rmem: tuple[int, int, int] = (4096, 131_072, 6_291_456)
    wmem: tuple[int, int, int] = (4096, 16_384, 4_194_304)
    core_rmem_max: int = 212_992
    core_wmem_max: int = 212_992
    congestion: str = "cubic"


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """A transfer: its setting, the rate that it was given (b/s), and what it reached of it."""

    streams: int
    buffer_bytes: int
    given_bps: float
    share: float


@dataclass(frozen=True, slots=True)
class PathFigures:
    """What is known of a path: its rate, round-trip time and loss (a fraction); the hosts at its
    ends, None where nobody said; the largest share of its time for which one of them computes, or
    waits for its disks; transfers over it; and whether its round-trip time was measured."""

    rate_bps: float
    rtt_s: float
    loss: float = 0.0
    src: HostTcp | None = None
    dst: HostTcp | None = None
    cpu_use: float = 0.0
    io_wait: float = 0.0
    tried: tuple[TriedSetting, ...] = ()
    measured: bool = False

    @property
    def under_way(self) -> float:
        """The bandwidth-delay product, bytes."""
        return bytes_of(self.rate_bps * self.rtt_s)

    @property
    def largest_buffer(self) -> int:
        """The largest that a program can ask for, bytes; 0 where nobody knows."""
        if self.src is None or self.dst is None:
            return 0
        return min(self.src.core_wmem_max, self.dst.core_rmem_max)

    def window(self, buffer_bytes: int) -> float:
        """What one stream may have under way, bytes; a buffer of 0 is the system's."""
        if buffer_bytes:
            return min(buffer_bytes, self.largest_buffer or buffer_bytes)
        return min((self.src or HostTcp()).wmem[2], (self.dst or HostTcp()).rmem[2]) / 2

    def loss_window(self) -> float:
        """What one stream has under way where packets are lost, bytes."""
        congestion = (self.src or HostTcp()).congestion
        if self.loss <= 0 or congestion.startswith("bbr"):
            return math.inf
        segments = math.sqrt(1.5 / self.loss)
        if congestion == "cubic":
            segments = max(segments, 1.054 * (self.rtt_s / self.loss) ** 0.75)
        return _MSS_BYTES * segments

    def overfills(self, streams: int, buffer_bytes: int) -> bool:
        """Whether so many streams send more than path and queue hold, and back off."""
        return streams * self.window(buffer_bytes) > _OVERFULL * self.under_way

    def expected_bps(self, streams: int, buffer_bytes: int) -> float:
        """The rate once TCP has found it, b/s."""
        whole = self.under_way
        if whole <= 0:
            return self.rate_bps
        filled = min(1.0, streams * self.window(buffer_bytes) / whole)
        # Streams do not lose in turn: where all of them just fill the path, they do not always.
        lossy = streams * self.loss_window() / whole
        share = max(1.0, whole / streams / _MSS_BYTES)
        timers = min(1.0, share / _LEAST_SHARE) if streams > 1 else 1.0
        if self.overfills(streams, buffer_bytes):  # the mean while one recovers
            timers *= 1 - _BACK_OFF / 2 / streams
        return self.rate_bps * min(filled, math.pow(1 + math.pow(lossy, -4), -0.25)) * timers

    def seconds(self, setting: tuple[int, int], size_bytes: int) -> float:
        """How long a transfer takes, with so many streams of such a buffer."""
        streams, rate_bps = setting[0], self.expected_bps(*setting)
        each = bytes_of(rate_bps * self.rtt_s) / streams
        start_s = self.rtt_s * math.log2(max(1.0, each / _FIRST_BYTES)) + streams * _STREAM_S
        start_s += math.cbrt(each / _MSS_BYTES * _BACK_OFF / _GROWTH) * _BACK_OFF / 2
        if self.loss > 0:  # what each stream moves before its first loss
            whole = min(size_bytes, streams * _MSS_BYTES / self.loss)
            whole_s = transfer_time(whole, replace(self, loss=0.0).expected_bps(*setting))
            return start_s + whole_s + transfer_time(size_bytes - whole, rate_bps)
        return start_s + transfer_time(size_bytes, rate_bps)

    def reached(self, streams: int, buffer_bytes: int) -> float | None:
        """What transfers tuned so reached of about this rate, where there are enough of them."""
        rates = [
            min(1.0, tried.share)
            for tried in self.tried
            if (tried.streams, tried.buffer_bytes) == (streams, buffer_bytes)
            and self.rate_bps / 2 <= tried.given_bps <= self.rate_bps * 2
        ]
        return median(rates) if len(rates) >= ENOUGH else None


@dataclass(frozen=True, slots=True)
class Advice:
    """The setting for a transfer (a ``buffer_bytes`` of 0 leaves it to the system), the rate to
    expect of it in b/s, what bounds that (``disk``, ``host``, ``window`` or ``path``), why in
    words, and what is in the way at the ends: a line for each, with its remedy."""

    streams: int
    buffer_bytes: int
    expected_bps: float
    bottleneck: str
    why: str
    limits: tuple[str, ...] = ()

    @property
    def setting(self) -> tuple[int, int]:
        """Streams and buffer."""
        return self.streams, self.buffer_bytes


def advise(path: PathFigures, size_bytes: int | None = None) -> Advice:
    """The setting for a transfer of that size over a path."""
    size = size_bytes or _USUAL_BYTES
    times = {pair: path.seconds(pair, size) for pair in _settings(path)}
    good = [pair for pair, seconds in times.items() if min(times.values()) >= _AS_GOOD * seconds]
    # Buffers that just fill the path go before the system's, which overfill it.
    chosen = min(good, key=lambda pair: (pair[0], -pair[1]))
    why = window_text(path, chosen[1])
    here, (share, best) = path.reached(*chosen), _best(path)
    if here is not None and share > _BETTER * here:
        why = f"transfers so tuned reached {share:.0%}, with {setting_text(*chosen)} {here:.0%}"
        chosen, here = best, share
    bottleneck, because = _bottleneck(path, chosen, here)
    expected = path.expected_bps(*chosen) if here is None else path.rate_bps * here
    why += f"; {because}" if because else ""
    return Advice(*chosen, expected, bottleneck, why, tuple(_limits(path)))


def varied_advice(advice: Advice, path: PathFigures, request_id: str) -> Advice:
    """The advice, or for one request in :data:`ONE_IN` a setting beside it: where transfers fall
    short by more than a tenth, the one that the model expects most of and few have tried."""
    here = path.reached(*advice.setting)
    if here is None or here * _WORTH >= 1 or zlib.crc32(request_id.encode()) % ONE_IN:
        return advice
    streams, size = advice.setting
    neighbours = (
        (streams * 2, size),
        (streams // 2, size),
        (streams, size * 2),
        (streams, size // 2),
    )
    gains = {
        pair: path.expected_bps(*pair) / path.rate_bps / here
        for pair in neighbours
        if 1 <= pair[0] <= STREAMS[-1]
        and pair[1] <= (path.largest_buffer or pair[1])
        and path.reached(*pair) is None
    }
    tried = max(gains, key=gains.__getitem__, default=advice.setting)
    if gains.get(tried, 0.0) <= _WORTH:
        return advice
    why = f"tried, for {setting_text(*advice.setting)} reached {here:.0%} of their rate"
    return replace(
        advice, streams=tried[0], buffer_bytes=tried[1], expected_bps=path.expected_bps(*tried),
        why=why,
    )  # fmt: skip


def setting_text(streams: int, buffer_bytes: int) -> str:
    """A setting for people."""
    of = f" of {format_size(buffer_bytes)}" if buffer_bytes else ", buffers by the system"
    return f"{streams} stream{'s' if streams > 1 else ''}{of}"


def window_text(path: PathFigures, buffer_bytes: int) -> str:
    """What a path has under way, and one stream of such a buffer of it, for people."""
    window, lossy = path.window(buffer_bytes), path.loss_window()
    return (
        f"{format_rate(path.rate_bps)} times {path.rtt_s * 1e3:.3g} ms are "
        f"{format_size(path.under_way)} under way, of which one stream may have "
        f"{format_size(min(window, lossy))}"
        f"{f' at a loss of {path.loss:.2g}' if lossy < window else ''}"
    )


def _settings(path: PathFigures) -> Iterable[tuple[int, int]]:
    """All that are looked at: the system's own buffers, and such as together just fill the path,
    in steps of a half at most, so that transfers with the same can be compared."""
    for streams in STREAMS:
        yield streams, 0
        each = max(_LEAST_BUFFER, path.under_way * _HEADROOM / streams)
        step = 2 ** (math.floor(math.log2(each)) - 1)
        if path.largest_buffer:
            yield streams, min(path.largest_buffer, step * math.ceil(each / step))


def _best(path: PathFigures) -> tuple[float, tuple[int, int]]:
    """What was reached at most, and with which setting."""
    known = {(t.streams, t.buffer_bytes) for t in path.tried}
    return max(((path.reached(*pair) or 0.0, pair) for pair in known), default=(0.0, (1, 0)))


def _bottleneck(
    path: PathFigures, setting: tuple[int, int], reached: float | None
) -> tuple[str, str]:
    """What bounds a transfer, and how one knows where it is not the path's rate."""
    if path.io_wait > _BUSY:
        return "disk", f"a host waits for its disks {path.io_wait:.0%} of the time"
    if path.cpu_use > _BUSY:
        return "host", f"a host computes {path.cpu_use:.0%} of the time"
    model = path.expected_bps(*setting) / path.rate_bps
    if reached is not None and reached < _BUSY * model:
        return "host", f"transfers reach {reached:.0%}, and neither path nor windows say why"
    if model < _BUSY:
        if path.loss_window() < path.window(setting[1]):
            return "path", f"its loss of {path.loss:.2g} bounds each stream"
        return "window", "the systems at its ends allow no larger windows"
    return "path", ""


def _limits(path: PathFigures) -> Iterable[str]:
    """What keeps one stream from filling the path, of the hosts that are known."""
    needed = 1 << math.ceil(math.log2(max(1.0, 2 * _HEADROOM * path.under_way)))
    ends = ("source", path.src, "wmem"), ("destination", path.dst, "rmem")
    for end, host, name in ends:
        sizes = None if host is None else getattr(host, name)
        if sizes is not None and sizes[2] / 2 < path.under_way:
            line = f'sysctl -w net.ipv4.tcp_{name}="{sizes[0]} {sizes[1]} {needed}"'
            yield f"{end}: tcp_{name} allows {format_size(sizes[2] / 2)} under way: {line}"
    if path.src is not None and path.loss_window() < path.under_way:
        line = "sysctl -w net.ipv4.tcp_congestion_control=bbr"
        yield f"source: {path.src.congestion} slows down with each loss: {line}"
