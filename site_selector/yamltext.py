"""YAML text to plain values, fast, with a line number for every error.

Three ways, one result, and where one is in doubt the next decides: JSON (which is YAML) by the
standard library's parser; the long lists that Pegasus writes line by line
(:mod:`site_selector.blocktext`); any YAML from events (:mod:`site_selector.yamlevents`).

No way constructs objects that a file might ask for, and each keeps every scalar as the text it is
written in, so that a version ``1.10`` stays ``1.10``. Lines are looked up only for errors.
"""

from __future__ import annotations

import gc
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from network_provisioner.errors import InputError
from site_selector.blocktext import NotPlainError, Section, read_sections
from site_selector.oldformats import old_format
from site_selector.yamlevents import (
    MAX_EVENTS,
    Key,
    build_tree,
    find_line,
    kind_of,
    shortened,
    too_many,
)

__all__ = ["MAX_BYTES", "Document", "Key", "parse_document", "read_document", "uncollected"]

# A workflow of 100,000 jobs is about 60 MB in 3.5 million lines. What is much larger is not meant,
# and would fill the memory.
MAX_BYTES = 150_000_000
MAX_LINES = 12_000_000

_START = 1000
# Half of a character beyond 16 bits: JSON can escape one, which no file could hold.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: ``root`` is made of dict, list, str and None; ``name`` is for messages.

    ``sections`` holds where the entries of long block-style lists lie in ``text``, by key.
    """

    name: str
    text: str
    root: dict[str, Any]
    sections: Mapping[str, Section] = field(default_factory=dict)

    def line(self, path: Sequence[Key]) -> int:
        """The line, from 1, of the value at ``path``, or of the nearest value around it."""
        section = self.sections.get(str(path[0])) if len(path) > 1 else None
        index = path[1] if len(path) > 1 else None
        if section is None or not isinstance(index, int) or index >= len(section):
            return find_line(self.text, tuple(path))
        start, end = section.starts[index], section.starts[index + 1]
        # Found in its entry alone: the whole of a long file would take seconds.
        return self.text.count("\n", 0, start) + find_line(self.text[start:end], (0, *path[2:]))

    def error(self, path: Sequence[Key], message: str) -> InputError:
        """An InputError that begins with file and line of ``path``, in one printable line."""
        return InputError(shortened(f"{self.name}:{self.line(path)}: {message}"))


@contextmanager
def uncollected() -> Iterator[None]:
    """A large workflow is millions of values, all of them in use: to look for garbage among them
    again and again takes longer than all the rest."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_document(path: str | Path, what: str) -> Document:
    """Read and parse a YAML file; ``what`` names it in messages ("Pegasus 5 site catalog").

    Raises InputError where the file is missing, unreadable, too large, XML, or not YAML.
    """
    file = Path(path)
    try:
        # Read to the limit, not measured: a device has no size and may have no end. A pipe that
        # nobody writes to would not even open.
        with open(file, "rb", opener=_opened) as stream:
            if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                raise InputError(f"{file}: found a pipe, expected a {what} in a file")
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            most = f"{MAX_BYTES / 1e6:.0f} MB"
            raise InputError(f"{file}: found more than {most}, expected a {what} of at most {most}")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: byte {error.start} is not UTF-8, expected a {what} as text"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{file}: {problem}, expected a {what}") from None
    return parse_document(text, str(file), what)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse_document(text: str, name: str, what: str) -> Document:
    """Parse YAML text whose top level is a mapping. Raises InputError with file and line."""
    if "\r\n" in text:  # one line break to YAML, as to all that is done with the text here
        text = text.replace("\r\n", "\n")
    old = old_format(text)
    if old is not None:
        found, advice = old
        tail = f"; {advice}" if advice else ""
        raise InputError(f"{name}: found {found}, expected {what} YAML{tail}")
    if text.count("\n") > MAX_LINES:
        most = f"{MAX_LINES:,} lines"
        raise InputError(f"{name}: found more than {most}, expected a {what} of at most {most}")
    with uncollected():
        root, sections = _parsed(text, name)
    if not isinstance(root, dict):
        found = "an empty file" if root is None else f"a {kind_of(root)}"
        raise InputError(f"{name}:1: found {found}, expected a {what} (a mapping)")
    return Document(name, text, root, sections)


def _parsed(text: str, name: str) -> tuple[Any, Mapping[str, Section]]:
    if text[:_START].lstrip().startswith("{"):
        if sum(text.count(sign) for sign in "{[,") > MAX_EVENTS // 2:  # as many as events elsewhere
            raise too_many(name)
        try:
            return _json(text), {}
        except (ValueError, RecursionError):
            pass  # YAML of another kind, or an error that the line is wanted of
    try:
        return read_sections(text, lambda part: build_tree(part, name, alone=True))
    except (NotPlainError, InputError, yaml.YAMLError):
        pass  # the text as a whole says what is wrong, if anything is
    try:
        return build_tree(text, name), {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = error.problem or error.context or "cannot be parsed"
        raise InputError(f"{name}:{line}: not valid YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None


def _json(text: str) -> Any:
    """JSON with every number, true and false as the text it is written in."""
    root = json.loads(
        text, object_pairs_hook=_pairs, parse_int=str, parse_float=str, parse_constant=str
    )
    if _SURROGATE.search(text):
        json.dumps(root, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError
    return root


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or "<<" in found:
        raise ValueError
    for key, value in pairs:
        if value is True or value is False or type(value) is list:
            found[key] = _text_of(value)
    return found


def _text_of(value: Any) -> Any:
    if type(value) is list:
        return [_text_of(item) for item in value]
    return value if value is not True and value is not False else str(value).lower()
