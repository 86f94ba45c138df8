"""The one place that converts units.

Inside ADON every size is in bytes, every rate of a link, path or transfer in bits per second,
every time in seconds. Γ_c, the compute throughput of a worker, is in bytes per second (thesis,
Table 3 divides bytes by it). Names carry the unit (``_bytes``, ``_bps``, ``_s``) where a reader
could doubt.
"""

from __future__ import annotations

import re
from math import isfinite
from reprlib import repr as shown

from network_provisioner.base.errors import InputError

BITS_PER_BYTE = 8

# A petabit per second, 8 exabytes, 300 years: whatever is larger is a slip, and sums of what is
# smaller stay finite.
MAX_RATE_BPS = 1e15
MAX_SIZE_BYTES = 2**63 - 1
MAX_DURATION_S = 1e10

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_TIME_S = {
    "us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
    "w": 604800.0, "y": 31536000.0,  # 365 days
}  # fmt: skip
_QUANTITY = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*\Z")
_RATE_UNIT = re.compile(r"[kmgtpKMGTP]?(?:(?:bits?|b)(?:/s(?:ec)?)?|bps|)\Z|[GT](?:b|ig)?E\Z")


def bits(n_bytes: float) -> float:
    """Bytes to bits."""
    return n_bytes * BITS_PER_BYTE


def bytes_of(n_bits: float) -> float:
    """Bits to bytes."""
    return n_bits / BITS_PER_BYTE


def transfer_time(n_bytes: float, rate_bps: float) -> float:
    """Seconds to move ``n_bytes`` at ``rate_bps``; infinite where the rate is zero."""
    if n_bytes <= 0:
        return 0.0
    return bits(n_bytes) / rate_bps if rate_bps > 0 else float("inf")


def goodput(n_bytes: float, seconds: float) -> float:
    """Bits per second of ``n_bytes`` moved in ``seconds``; zero where no time passed, or so little
    that no number tells the rate."""
    rate_bps = bits(n_bytes) / seconds if seconds > 0 else 0.0
    return rate_bps if isfinite(rate_bps) else 0.0


def _split(value: object, what: str, example: str) -> tuple[float, str]:
    expected = f"expected a number with a unit such as {example}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"{what}: found {shown(value)}, {expected}")
    if isinstance(value, str):
        match = _QUANTITY.match(value)
        if match is None:
            raise InputError(f"{what}: found {shown(value)}, {expected}")
        number, unit = float(match.group(1)), match.group(2)
    else:
        try:
            number, unit = float(value), ""
        except OverflowError:
            number, unit = float("inf"), ""
    if not 0 <= number < float("inf"):
        raise InputError(
            f"{what}: found {shown(value)}, expected a finite number that is not negative"
        )
    return number, unit


def _at_most(quantity: float, most: float, value: object, what: str, limit: str) -> float:
    if quantity > most:
        raise InputError(f"{what}: found {shown(value)}, expected at most {limit}")
    return quantity


def parse_rate(value: object, what: str = "rate") -> float:
    """``"200 Mb/s"``, ``"200Mbps"``, ``"10 Gbit/s"``, ``"10G"``, ``"100GE"``, iperf's
    ``"9.4 Gbits/sec"`` or a plain number of bits per second.

    Raises InputError, also for bytes per second, which are not accepted for links.
    """
    example = "'200 Mb/s'"
    number, unit = _split(value, what, example)
    if not _RATE_UNIT.match(unit):
        raise InputError(
            f"{what}: found {shown(value)}, expected bits per second such as {example}"
        )
    scale = _DECIMAL.get(unit[:1].lower(), 1)
    return _at_most(number * scale, MAX_RATE_BPS, value, what, "1 Pb/s")


def parse_size(value: object, what: str = "size") -> int:
    """``"1.5 GB"``, ``"64 KiB"`` or a plain number of bytes. Raises InputError."""
    example = "'1.5 GB'"
    number, unit = _split(value, what, example)
    body = unit[:-1] if unit.endswith("B") else unit
    scale = _BINARY.get(body.lower()) or _DECIMAL.get(body.lower())
    if scale is None:
        raise InputError(f"{what}: found {shown(value)}, expected bytes such as {example}")
    return int(_at_most(number * scale, MAX_SIZE_BYTES, value, what, "8 EB"))


def whole_bytes(text: str) -> int | None:
    """A size as programs write it, in digits alone; None for what cannot be one. Takes a tenth of
    the time of :func:`parse_size`."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


def parse_duration(value: object, what: str = "duration") -> float:
    """``"53 ms"``, ``"2 min"`` or a plain number of seconds. Raises InputError."""
    number, unit = _split(value, what, "'53 ms'")
    scale = _TIME_S.get(unit)
    if scale is None:
        raise InputError(
            f"{what}: found {shown(value)}, expected a time such as '53 ms', '30 s', '2 h'"
        )
    return _at_most(number * scale, MAX_DURATION_S, value, what, "300 years")


def _scaled(value: float, suffixes: tuple[str, ...]) -> str:
    for suffix in suffixes[:-1]:
        # Rounded first: 999.9 kB to three digits is 1 MB, not 1e+03 kB.
        if abs(float(f"{value:.3g}")) < 1000:
            return f"{value:.3g} {suffix}"
        value /= 1000
    return f"{value:.4g} {suffixes[-1]}"


def format_rate(rate_bps: float) -> str:
    """Bits per second for people: ``200 Mb/s``."""
    return _scaled(rate_bps, ("b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"))


def format_size(n_bytes: float) -> str:
    """Bytes for people: ``1.5 GB``."""
    return _scaled(n_bytes, ("B", "kB", "MB", "GB", "TB", "PB"))
