"""Values of the report as text: the same on the page, in the summary and in tooltips."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from monitors.workflows.report import Failure
from network_provisioner.base.units import format_rate, format_size
from site_selector.mapping.reasons import seconds

INFINITE = "∞"
# What the first word of an estimate's name means, for readers who have not read the papers.
_PLAIN = {"N": "workers at", "T_q": "queue wait at", "Γ_a": "bandwidth", "Γ_c": "speed of"}


def short_name(transformation: str) -> str:
    """``soykb::bwa_mem:1.0`` without namespace and version."""
    return transformation.rpartition("::")[2].partition(":")[0]


def term_text(value: float | None) -> str:
    """A term of the cost model; what never comes is infinite, in JSON null."""
    return INFINITE if value is None or not math.isfinite(value) else seconds(value)


def clock_text(at: float) -> str:
    """A Unix second as date and time, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def quantity(kind: str, value: float | None) -> str:
    """An estimate's value; ``kind`` is count, seconds, rate (bit/s) or bytes_rate (byte/s)."""
    if value is None or not math.isfinite(value):
        return "no bound" if kind in ("rate", "bytes_rate") else INFINITE
    if kind == "rate":
        return format_rate(value)
    if kind == "bytes_rate":
        return f"{format_size(value)}/s"
    return seconds(value) if kind == "seconds" else f"{value:g}"


def source_text(estimate: Mapping[str, Any]) -> str:
    """Where a value comes from, and how old it is where it was measured."""
    age, note = estimate.get("age_s"), estimate.get("note")
    text = str(estimate.get("source", "unknown"))
    if age:
        text += f", {seconds(age)} old"
    return f"{text}; {note}" if note else text


def estimate_name(what: str, kind: str) -> str:
    """``Γ_a iplant>mu`` in plain words."""
    symbol, _, subject = what.partition(" ")
    name = "run time of" if symbol == "Γ_c" and kind == "seconds" else _PLAIN.get(symbol, symbol)
    if symbol == "Γ_c":
        transformation, _, site = subject.rpartition("@")
        return f"{name} {short_name(transformation)} at {site}"
    return f"{name} {subject.replace('>', ' → ')}"


def failure_text(failure: Failure) -> str:
    """Which job failed, where, and how."""
    code = failure.exit_code
    how = failure.reason or "failed"
    if code is not None and code != 0:
        how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
    elif code == 0:
        how = f"exit code 0, but {failure.reason or 'its POST script refused it'}"
    where = f" at {failure.site}" if failure.site else ""
    tries = f", the last of {failure.attempts} attempts" if failure.attempts > 1 else ""
    return f"{failure.job}{where}: {how}{tries}"


def counted(number: int, noun: str, many: str = "") -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
