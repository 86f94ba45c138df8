"""ClassAds as HTCondor prints them, one ``Name = value`` a line: what hooks and event logs have.

Values are texts, numbers and truth values; any other expression stays as its text. HTCondor's own
bindings would take ten times as long to import as a hook has to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Value = str | int | float | bool
JobAd = Mapping[str, Value]

_TRUTH = {"true": True, "false": False}
_MOST_DIGITS = 20
_HUGE = 1e18


def parse(lines: Iterable[str]) -> dict[str, Value]:
    """The ad in these lines; what is no attribute is passed over."""
    ad: dict[str, Value] = {}
    for line in lines:
        name, equals, value = line.partition(" = ")
        if equals and name and not name[0].isspace():
            ad[name] = _value(value.strip())
    return ad


def _value(text: str) -> Value:
    if len(text) > 1 and text[0] == text[-1] == '"':
        inner = text[1:-1]
        return inner.replace('\\"', '"').replace("\\\\", "\\") if "\\" in inner else inner
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    digits = text.removeprefix("-")
    if digits.isdecimal() and digits.isascii() and len(digits) <= _MOST_DIGITS:
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def line(name: str, value: Value) -> str:
    """One attribute as HTCondor reads it."""
    if isinstance(value, bool):
        return f"{name} = {str(value).lower()}\n"
    if isinstance(value, str):
        plain = "".join(c if c.isprintable() else " " for c in value)
        escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
        return f'{name} = "{escaped}"\n'
    return f"{name} = {value}\n"


def text(ad: JobAd, *names: str) -> str:
    """The first of these attributes that is a text with something in it, else empty."""
    for name in names:
        value = ad.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def number(ad: JobAd, name: str) -> float | None:
    """A number; None where it is none."""
    value = ad.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _HUGE else None  # neither infinite nor no number
