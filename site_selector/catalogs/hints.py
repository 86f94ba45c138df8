"""What a workflow admin knows about a site: ``profiles: pegasus: adon.*`` in the site catalog.

Pegasus accepts and carries such keys along. ADON takes them where nothing was measured:

    adon.workers             worker slots, N
    adon.rate                what one worker computes, Γ_c ("25 MB/s"; bytes per second)
    adon.queue_wait          usual wait in the site's queue, T_q ("30 s")
    adon.bandwidth.<site>    throughput to and from another site, Γ_a ("200 Mb/s")
    adon.rtt.<site>          round-trip time to another site ("53 ms")
    adon.loss.<site>         packet loss towards another site, as a fraction (0.0001)
    adon.space               free space for the files of workflows ("2 TB")
    adon.streams             parallel TCP streams of a transfer
    adon.buffer              TCP buffer of one stream ("4 MiB")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any, TypeVar

from network_provisioner.base.errors import InputError, did_you_mean
from network_provisioner.base.units import parse_duration, parse_rate, parse_size
from site_selector.catalogs.documents import Document, Key
from site_selector.catalogs.fields import HINT, Profiles, is_hint

T = TypeVar("T", int, float)

_MOST = 10_000_000  # workers or streams: more is a slip


@dataclass(frozen=True, slots=True)
class Hints:
    """The ``adon.*`` profiles of one site; None or empty if nothing is said.

    ``rate`` is in bytes per second and worker, ``bandwidth_bps`` in bits per second by other site.
    """

    workers: int | None = None
    rate: float | None = None
    queue_wait_s: float | None = None
    space_bytes: int | None = None
    streams: int | None = None
    buffer_bytes: int | None = None
    bandwidth_bps: Mapping[str, float] = field(default_factory=dict)
    rtt_s: Mapping[str, float] = field(default_factory=dict)
    loss: Mapping[str, float] = field(default_factory=dict)


def parse_hints(profiles: Mapping[str, str]) -> Hints:
    """Read the ``adon.*`` keys of a site's pegasus profiles; other keys are Pegasus's own.

    By hand, because pydantic's import alone is a third of the planner plug-in's start. Raises
    InputError that names the key, for unknown keys with a suggestion.
    """
    values: dict[str, Any] = {}
    for key, value in profiles.items():
        if not is_hint(key):
            continue
        prefix = next((p for p in _PER_SITE if key.startswith(p) and key != p), None)
        if prefix is not None:
            name, parse = _PER_SITE[prefix]
            values.setdefault(name, {})[key.removeprefix(prefix)] = parse(value, key)
        elif key in _PLAIN:
            name, parse = _PLAIN[key]
            values[name] = parse(value, key)
        else:
            known = [*_PLAIN, *(f"{p}<site>" for p in _PER_SITE)]
            raise InputError(
                f"unknown key {key!r}{did_you_mean(key, known) or ', expected ' + ', '.join(known)}"
            )
    return Hints(**values)


def unknown_sites(hints: Hints, known: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Each key that names a site which is not ``known``, and what is wrong with it."""
    by_kind = {"bandwidth": hints.bandwidth_bps, "rtt": hints.rtt_s, "loss": hints.loss}
    for kind, by_site in by_kind.items():
        for other in by_site:
            if other not in known:
                key = f"{HINT}{kind}.{other}"
                expected = f"expected one of {', '.join(known)}{did_you_mean(other, known)}"
                yield key, f"{key} names the unknown site {other!r}, {expected}"


def refuse_hints(document: Document, path: tuple[Key, ...], profiles: Profiles, what: str) -> None:
    """Raises InputError for an ``adon.*`` profile where none is read: it is there for nothing.

    Metadata may be of any name: nobody takes it for a setting."""
    for namespace, keys in profiles.items():
        for key in keys:
            if is_hint(key) and namespace != "metadata":
                raise document.error(
                    (*path, namespace, key),
                    f"{what}: found {key!r} in profiles: {namespace}, expected {HINT}* only in "
                    "profiles: pegasus of a site of the site catalog",
                )


def _whole(least: int) -> Callable[[str, str], int]:
    def parsed(value: str, key: str) -> int:
        digits = value.strip()
        known = digits.isdecimal() and digits.isascii() and len(digits) <= len(str(_MOST))
        if not known or not least <= int(digits) <= _MOST:
            raise InputError(
                f"{key}: found {shown(value)}, expected a whole number from {least} to {_MOST:,}"
            )
        return int(digits)

    return parsed


def _positive(parse: Callable[[str, str], T]) -> Callable[[str, str], T]:
    def parsed(value: str, key: str) -> T:
        number = parse(value, key)
        if not number:
            raise InputError(f"{key}: found 0, expected more")
        return number

    return parsed


def _compute_rate(value: str, key: str) -> float:
    amount = value.strip()
    amount = amount[:-2] if amount.endswith("/s") else amount
    try:
        return _positive(parse_size)(amount, key)
    except InputError:
        raise InputError(
            f"{key}: found {shown(value)}, expected bytes per second and worker, above 0, such as "
            "'25 MB/s'"
        ) from None


def _fraction(value: str, key: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise InputError(f"{key}: found {shown(value)}, expected a fraction in [0, 1)")
    return number


_PLAIN: dict[str, tuple[str, Callable[[str, str], float]]] = {
    "adon.workers": ("workers", _whole(0)),
    "adon.rate": ("rate", _compute_rate),
    "adon.queue_wait": ("queue_wait_s", parse_duration),
    "adon.space": ("space_bytes", parse_size),
    "adon.streams": ("streams", _whole(1)),
    "adon.buffer": ("buffer_bytes", _positive(parse_size)),
}
_PER_SITE: dict[str, tuple[str, Callable[[str, str], float]]] = {
    "adon.bandwidth.": ("bandwidth_bps", _positive(parse_rate)),
    "adon.rtt.": ("rtt_s", parse_duration),
    "adon.loss.": ("loss", _fraction),
}
