"""Documents that people and programs send, by pydantic: read, or refused in one line.

The fields of a model, or of a dataclass that is :data:`STRICT`, name the keys; all of them are
known, and every value is of its own type. Where a quantity is meant, it may carry a unit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from reprlib import repr as shown
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails

from network_provisioner.base import fields
from network_provisioner.base.database_url import place
from network_provisioner.base.errors import InputError, meant
from network_provisioner.base.units import parse_duration, parse_rate, parse_size

T = TypeVar("T")
STRICT = ConfigDict(extra="forbid")
"""``__pydantic_config__`` of dataclasses and typed dictionaries whose keys are all known."""
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
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
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_unicode": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "invalid_key": "a name, in quotes",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


class Schema(BaseModel):
    """A mapping whose keys are all known, and which nobody changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class As:
    """Marks a field that is written as another type, such as a dictionary of known keys."""

    kind: type[Any]

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.kind)


def adapter(kind: Any) -> TypeAdapter[Any]:
    """Reads and writes what is of this type; takes milliseconds to make, once."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def read(schema: type[T], data: object, what: str, folder: Path | None = None) -> T:
    """``data`` as ``schema`` has it; every :data:`File` in it counts from ``folder``. Raises
    InputError, one line that begins with ``what``."""
    if not isinstance(data, Mapping):
        raise InputError(f"{what} is {shown(data)}, expected a mapping")
    validate = partial(adapter(schema).validate_python, context=folder)
    return _validated(schema, validate, data, what)


def read_json(schema: type[T], text: str | bytes, what: str) -> T:
    """As :func:`read`, from JSON."""
    return _validated(schema, adapter(schema).validate_json, text, what)


def _validated(schema: type[T], validate: Callable[[Any], Any], data: object, what: str) -> T:
    try:
        document: T = validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # A slip in a key is also a key that is missing.
        first = next((e for e in errors if e["type"] in _UNKNOWN), errors[0])
        raise InputError(_line(schema, first, what)) from None
    return document


def checked(function: Callable[[Any, str], T]) -> BeforeValidator:
    """Takes what ``function(value, what)`` makes of a value, or what it says (InputError)."""

    def check(value: object) -> T:
        try:
            return function(value, "")
        except InputError as error:
            message = str(error).removeprefix(": ")
            raise ValueError(
                f"found {message[4:]}" if message.startswith(" is ") else message
            ) from None

    return BeforeValidator(check)


def _from_folder(value: str, info: ValidationInfo) -> str:
    if not value or info.context is None:
        return value
    # Path.expanduser raises where there is no such home.
    return str(place(os.path.expanduser(value), info.context))  # noqa: PTH111


File = Annotated[str, AfterValidator(_from_folder)]
"""A file's path, or the URL of a database; relative ones count from the folder of the document,
those that begin with ``~`` from the user's home."""
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
INTEGRAL = BeforeValidator(fields.integral)
"""Takes ``1e9`` and ``7.0`` where a whole number is meant."""
Whole = Annotated[int, Field(strict=True), INTEGRAL]
"""A whole number, and no truth value."""


def listed(length: int, expected: str) -> BeforeValidator:
    """Takes lists of so many items; ``expected`` says in words what they are."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != length:
            raise ValueError(f"found {shown(value)}, expected {expected}")
        return value

    return BeforeValidator(check)


def matching(pattern: str, expected: str) -> AfterValidator:
    """Takes texts that match as a whole; ``expected`` says in words which."""
    known = re.compile(pattern)

    def check(text: str) -> str:
        if not known.fullmatch(text):
            raise ValueError(f"found {shown(text)}, expected {expected}")
        return text

    return AfterValidator(check)


def _line(schema: type[Any], error: ErrorDetails, what: str) -> str:
    # A type in brackets is one of several that a value may have.
    place = [part for part in error["loc"] if "[" not in str(part)]
    where = ": ".join(filter(None, (what, ".".join(map(str, place)))))
    if error["type"] in (*_UNKNOWN, "missing"):
        within = ": ".join(filter(None, (what, ".".join(map(str, place[:-1])))))
        if error["type"] == "missing":
            return f"{within} has no {place[-1]!r}, expected it"
        known = _keys_at(schema, place[:-1])
        hint = meant(place[-1], known, f"expected among {', '.join(known)}")
        return f"{within} has the unknown key {shown(place[-1])}, {hint}"
    if error["type"] == "json_invalid":
        return f"{where}: not valid JSON: {error['ctx']['error']}"
    if error["type"] == "value_error":
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    expected = _EXPECTED.get(error["type"], "").format(**error.get("ctx", {}))
    expected = expected or error["msg"].removeprefix("Input should be ")
    return f"{where}: found {shown(error['input'])}, expected {expected}"


def _keys_at(kind: Any, place: list[int | str]) -> list[str]:
    for part in place:
        field = _keys(kind).get(str(part))
        inner = [field, *get_args(field), *(m.kind for m in get_args(field) if isinstance(m, As))]
        kind = next((i for i in inner if _keys(i)), kind)
    return list(_keys(kind))


def _keys(kind: Any) -> dict[str, Any]:
    """The keys of what is written as a mapping of known ones, with their types."""
    if not isinstance(kind, type):
        return {}
    if issubclass(kind, BaseModel):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    if not (is_dataclass(kind) or hasattr(kind, "__total__")):
        return {}
    keys = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        given = (m.alias for m in get_args(hint) if isinstance(m, FieldInfo))
        keys[next(filter(None, given), name)] = hint
    keys.pop("__pydantic_config__", None)
    return keys
