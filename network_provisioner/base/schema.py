"""Documents that people and programs send, as pydantic models: read, or refused in one line.

A model's fields name the keys; all of them are known, and every value is of its own type. Where a
quantity is meant, it may carry a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from reprlib import repr as shown
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.suggestions import meant
from network_provisioner.base.units import parse_duration, parse_rate, parse_size

S = TypeVar("S", bound="Schema")
T = TypeVar("T")


class Schema(BaseModel):
    """A mapping whose keys are all known, and which nobody changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read(schema: type[S], data: object, what: str) -> S:
    """``data`` as ``schema`` has it. Raises InputError, one line that begins with ``what``."""
    if not isinstance(data, Mapping):
        raise InputError(f"{what} is {shown(data)}, expected a mapping")
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # A slip in a key is also a key that is missing.
        first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
        raise InputError(_line(schema, first, what)) from None


def checked(function: Callable[[Any, str], T]) -> BeforeValidator:
    """Takes what ``function(value, what)`` makes of a value, or what it says (InputError)."""

    def check(value: object) -> T:
        try:
            return function(value, "")
        except InputError as error:
            said = str(error).removeprefix(": ")
            raise ValueError(f"found {said[4:]}" if said.startswith(" is ") else said) from None

    return BeforeValidator(check)


Rate = Annotated[float, checked(parse_rate)]
"""Bits per second: ``200 Mb/s``."""
Duration = Annotated[float, checked(parse_duration)]
"""Seconds: ``53 ms``."""
Size = Annotated[int, checked(parse_size)]
"""Bytes: ``64 KiB``."""
Name = Annotated[str, checked(fields.name)]
"""A text that is not empty, all of it printable."""
Number = Annotated[float, checked(lambda value, what: fields.number(value, what, "a number"))]
"""A finite number."""
Fraction = Annotated[Number, Field(ge=0, lt=1)]
"""A part of a whole, in [0, 1)."""
Whole = Annotated[int, Field(strict=True)]
"""A whole number, and no truth value."""


def listed(length: int, expected: str) -> BeforeValidator:
    """Takes lists of so many items; ``expected`` says in words what they are."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != length:
            raise ValueError(f"found {shown(value)}, expected {expected}")
        return value

    return BeforeValidator(check)


_EXPECTED = {
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "too_long": "at most {max_length}",
    "too_short": "{min_length} or more",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "{min_length} or more characters",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "enum": "one of {expected}",
    "literal_error": "one of {expected}",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _line(schema: type[Schema], error: ErrorDetails, what: str) -> str:
    place = [part for part in error["loc"] if part != "[key]"]
    where = ": ".join(filter(None, (what, ".".join(map(str, place)))))
    if error["type"] in ("extra_forbidden", "missing"):
        within = ": ".join(filter(None, (what, ".".join(map(str, place[:-1])))))
        if error["type"] == "missing":
            return f"{within} has no {place[-1]!r}, expected it"
        known = list(_model_at(schema, place[:-1]).model_fields)
        hint = meant(place[-1], known, f"expected among {', '.join(known)}")
        return f"{within} has the unknown key {shown(place[-1])}, {hint}"
    if error["type"] == "value_error":
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    expected = _EXPECTED.get(error["type"], "").format(**error.get("ctx", {}))
    expected = expected or error["msg"].removeprefix("Input should be ")
    return f"{where}: found {shown(error['input'])}, expected {expected}"


def _model_at(schema: type[Schema], place: list[int | str]) -> type[Schema]:
    for part in place:
        field = schema.model_fields.get(str(part))
        inner = [] if field is None else [field.annotation, *get_args(field.annotation)]
        schema = next((i for i in inner if isinstance(i, type) and issubclass(i, Schema)), schema)
    return schema
