"""YAML text to plain values, fast, with a line number for every error.

The tree is made of the events of PyYAML's C parser directly, which takes a quarter of the time of
its loaders; no object is made that a file might ask for. Every scalar of a workflow or catalog is
kept as the text it is written in, so that a version ``1.10`` stays ``1.10``; configuration is read
with its numbers and truth values (``typed``). Lines are looked up only for errors. JSON, which is
YAML, is read by the standard library where it can be.

Files of Pegasus have their variables put in before they are parsed, as Pegasus does it.
"""

from __future__ import annotations

import gc
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from reprlib import repr as shown
from typing import Any

import yaml

from network_provisioner.base.errors import InputError, printable
from site_selector.catalogs import pegasus4
from site_selector.catalogs.properties import escaped, expanded

_XML_ROOT = re.compile(r"<([A-Za-z_][\w.\-]*+)([^<>]*+)>", re.ASCII)
_VERSION = re.compile(r"\bversion\s*=\s*[\"']([\w.]{1,12})[\"']", re.ASCII)
# A text catalog of replicas (``lfn pfn site="local"``, where sites were once called pools).
_REPLICA = re.compile(r"[^\s:]+\s+\S+\s+(?:\S+\s+)*(?:site|pool)=\"", re.ASCII)
_SEEN = 20_000

_ROOTS: Mapping[str, tuple[str, str]] = {
    "adag": (
        "a workflow in an unknown form",
        "have its generator write it by the Pegasus.api package of Pegasus 5 (Pegasus manual, "
        "'Moving From DAX3 to Pegasus.api')",
    ),
    "sitecatalog": (
        "a site catalog of Pegasus 3 or older",
        "convert it by 'pegasus-sc-converter -i sites.xml -o sites.yml'",
    ),
}
# A workflow of 100,000 jobs is about 60 MB in 3.5 million lines and 8 million events. What is much
# larger is not meant, and would fill the memory.
MAX_BYTES = 150_000_000
MAX_EVENTS = 25_000_000
MAX_ALIASED = 5_000_000  # values that aliases stand for, each time
# Flows within flows take the parser a time that grows with the square of their depth.
MAX_DEPTH = 200
Key = str | int
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_LONGEST = 2000  # of a message: names in it are the file's
_START = 1000
# Half of a character beyond 16 bits: JSON can escape one, which no file could hold.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TIMESTAMP, _BOOLEAN = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool"
_MERGE = "tag:yaml.org,2002:merge"
# What YAML 1.1 takes for octal, or for numbers to base 60: nobody who writes 0200 means 128.
_OTHER_BASE = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)\Z")
_NO_KEY = object()
_VALUES = (yaml.ScalarEvent, yaml.AliasEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent)


def old_format(text: str) -> tuple[str, str] | None:
    """What a text that is no YAML catalog is, and what to do with it, or None if unknown."""
    start = text[:_SEEN].lstrip()
    if start.startswith("<"):
        return _xml(start)
    lines = (line.strip() for line in start.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if _REPLICA.match(first):
        return (
            "a replica catalog of Pegasus 4 as text",
            "convert it by 'pegasus-rc-converter -I File -i rc.txt -O YAML -o replicas.yml'",
        )
    return None


def _xml(start: str) -> tuple[str, str]:
    root = _XML_ROOT.search(start)
    if root is None or root[1].lower() not in _ROOTS:
        return ("XML" if root is None else f"XML <{root[1][:40]}>"), ""
    kind, advice = _ROOTS[root[1].lower()]
    version = _VERSION.search(root[2])
    return f"XML <{root[1]}{f' {version[1]}' if version else ''}>, {kind}", advice


class RefusedError(yaml.MarkedYAMLError):
    """Valid YAML that is not read here."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: ``root`` is made of dict, list, str and None; ``name`` is for messages.
    ``lines`` are those of its values where it is no YAML, but in a form of Pegasus 4."""

    name: str
    text: str
    root: dict[str, Any]
    lines: Mapping[tuple[Key, ...], int] | None = None

    def value(self, path: Sequence[Key]) -> Any:
        """The value at ``path`` through mappings; None if there is none."""
        value: Any = self.root
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def line(self, path: Sequence[Key]) -> int:
        """The line, from 1, of the value at ``path``, or of the nearest value around it."""
        line = 1
        if self.lines is not None:
            around = (tuple(path[:end]) for end in range(len(path), -1, -1))
            return next((self.lines[at] for at in around if at in self.lines), line)
        with suppress(yaml.YAMLError):  # JSON that is no YAML: the line of what was found so far
            for line in _lines(self.text, tuple(path)):  # noqa: B007
                pass
        return line

    def plain_scalars(
        self, paths: Collection[tuple[Key, ...]]
    ) -> Iterator[tuple[tuple[Key, ...], bool]]:
        """Which of the scalars at ``paths`` are written without quotes, as far as they are seen
        (one that an alias stands for is not)."""
        left = 0 if self.lines is not None else len(paths)
        with suppress(yaml.YAMLError):
            for path, event in _values(self.text) if left else ():
                if type(event) is yaml.ScalarEvent and (at := tuple(path)) in paths:
                    yield at, bool(event.implicit[0]) and not event.style
                    left -= 1
                    if not left:
                        return

    def error(self, path: Sequence[Key], message: str) -> InputError:
        """An InputError that begins with file and line of ``path``, in one printable line."""
        return InputError(_shortened(f"{self.name}:{self.line(path)}: {message}"))


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


def read_document(
    path: str | Path, what: str, variables: Mapping[str, str] | None = None
) -> Document:
    """Read and parse a YAML file of Pegasus; ``what`` names it in messages ("Pegasus 5 site
    catalog"). ``${NAME}`` in it stands for one of ``variables``, by default the environment.

    Raises InputError if the file is missing, unreadable, too large, XML, or not YAML, and for a
    variable that is not set.
    """
    return parse_document(read_expanded(path, what, variables), str(path), what)


def read_expanded(path: str | Path, what: str, variables: Mapping[str, str] | None = None) -> str:
    """A file's text with its variables put in; see :func:`read_document`. Raises InputError."""
    known = os.environ if variables is None else variables
    return expanded(read_text(path, what), str(path), known)


def settled(path: str | Path, what: str, variables: Mapping[str, str]) -> str:
    """A file's text as it reads whatever variables are set later. Raises InputError."""
    return escaped(read_expanded(path, what, variables))


def read_text(path: str | Path, what: str, other_encoding: str | None = None) -> str:
    """A file's text, UTF-8 or ``other_encoding``. Raises InputError if it is missing, unreadable
    or too large."""
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
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if other_encoding is not None:
            return content.decode(other_encoding)
        raise InputError(
            f"{file}: byte {error.start} is not UTF-8, expected a {what} as text"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{file}: {problem}, expected a {what}") from None


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse_document(text: str, name: str, what: str) -> Document:
    """Parse YAML text whose top level is a mapping, or what Pegasus 4 had in its place. Raises
    InputError with file and line."""
    if "\r\n" in text:  # one line break to YAML, as to all that is done with the text here
        text = text.replace("\r\n", "\n")
    try:
        old = pegasus4.converted(text)
    except pegasus4.FormError as error:
        raise InputError(_shortened(f"{name}:{error.line}: {error}")) from None
    if old is not None:
        return Document(name, text, *old)
    unread = old_format(text)
    if unread is not None:
        actual, advice = unread
        tail = f"; {advice}" if advice else ""
        raise InputError(f"{name}: found {actual}, expected {what} YAML{tail}")
    try:
        with uncollected():
            root = _parsed(text)
    except RefusedError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(_shortened(f"{name}{line}: {error.problem}")) from None
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = error.problem or error.context or "cannot be parsed"
        raise InputError(f"{name}:{at}: not valid YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(root, dict):
        actual = "an empty file" if root is None else f"a {kind_of(root)}"
        raise InputError(f"{name}:1: found {actual}, expected a {what} (a mapping)")
    return Document(name, text, root)


def kind_of(value: object) -> str:
    """What a value of a document is called in messages."""
    return {dict: "mapping", list: "list", str: "text", type(None): "nothing"}[type(value)]


def _shortened(message: str) -> str:
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    return printable(message)


# -------------------------------------------------------------------------- from text to values


def _parsed(text: str) -> Any:
    if text[:_START].lstrip().startswith("{"):
        if sum(text.count(sign) for sign in "{[,") > MAX_EVENTS // 2:
            raise _too_many()
        with suppress(ValueError, RecursionError):  # YAML of another kind, or an error in a line
            return _json(text)
    return build_tree(text)


def _too_many() -> RefusedError:
    problem = f"found more than {MAX_EVENTS:,} values and brackets, expected less"
    return RefusedError(problem=problem)


def build_tree(  # noqa: PLR0912, PLR0915  (a call would take as long as what is done in it)
    text: str, typed: bool = False, depth: int = MAX_DEPTH, aliased: int = MAX_ALIASED
) -> Any:
    """The values of a text; of a key that is given twice the last holds, as in Pegasus. Raises
    YAMLError, and RefusedError for more than ``depth`` levels, for aliases that stand for more than
    ``aliased`` values together or for what they are in, and for tags and keys given twice in what
    is read ``typed``."""
    events: Iterator[Any] = yaml.parse(text, Loader=LOADER)
    root: Any = None
    container: Any = None
    key: Any = _NO_KEY
    stack: list[tuple[Any, Any]] = []
    anchors: dict[str, Any] = {}
    begun: dict[int, tuple[str, int]] = {}  # of containers with an anchor that have not ended
    sizes: dict[str, int] = {}  # of those that have
    expanded = 0
    texts: dict[str, str] = {}  # equal texts are made one
    documents = 0
    for number, event in enumerate(islice(events, MAX_EVENTS)):
        kind = type(event)
        opened = False
        if kind is yaml.ScalarEvent:
            value: Any = event.value
            value = texts.setdefault(value, value)
            if event.implicit[0] and not event.style:
                if value in NULLS:
                    value = None
                elif typed:
                    value = _typed(event, is_key=key is _NO_KEY and type(container) is dict)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            value = {} if kind is yaml.MappingStartEvent else []
            opened = True
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            if begun and id(container) in begun:
                anchor, before = begun.pop(id(container))
                sizes[anchor] = number + expanded - before
            if type(container) is dict and "<<" in container:
                _merge(container)
            container, key = stack.pop()
            continue
        elif kind is yaml.AliasEvent:
            if event.anchor not in anchors:
                raise _marked(event, f"alias *{event.anchor} has no anchor before it")
            value = anchors[event.anchor]
            if id(value) in begun:
                raise _marked(event, f"alias *{event.anchor} is inside the node that it names")
            expanded += sizes.get(event.anchor, 1)
            if expanded > aliased:
                raise _marked(event, f"aliases expand to more than {aliased:,} values")
        else:
            documents += kind is yaml.DocumentStartEvent
            if documents > 1:
                raise _marked(event, "a second document, expected one in the file")
            continue
        if kind is not yaml.AliasEvent:
            if event.anchor:
                anchors[event.anchor] = value
                sizes.pop(event.anchor, None)
                if opened:
                    begun[id(value)] = event.anchor, number + expanded
            if typed and event.tag:
                raise _marked(
                    event, f"found the tag {event.tag!r}, and plain values are enough here"
                )
        if type(container) is list:
            container.append(value)
        elif container is None:
            root = value
        elif key is _NO_KEY:
            if value is None:
                value = "null"
            elif isinstance(value, dict | list):
                raise _marked(event, f"a {kind_of(value)} as a key, expected text")
            if value in container:
                if typed:
                    raise _marked(event, f"key {shown(value)} is given twice")
                del container[value]
            key = value
        else:
            container[key] = value
            key = _NO_KEY
        if opened:
            if len(stack) >= depth:
                raise _marked(event, f"more than {depth} levels, expected fewer")
            stack.append((container, key))
            container, key = value, _NO_KEY
    if next(events, None) is not None:
        raise _too_many()
    return root


def _marked(event: Any, problem: str) -> RefusedError:
    return RefusedError(problem=problem, problem_mark=event.start_mark)


def _merge(container: dict[str, Any]) -> None:
    """YAML's merge key: values of ``<<`` hold where the mapping itself says nothing."""
    sources = container.pop("<<")
    for source in sources if isinstance(sources, list) else [sources]:
        if isinstance(source, dict):
            for key, value in source.items():
                container.setdefault(key, value)


def _typed(event: Any, is_key: bool) -> Any:
    """A number or truth value; what looks like a date is text, and so is a key like "on", and
    digits that are no decimal number."""
    try:
        tag, make = _resolved(event.value)
        return event.value if is_key and tag == _BOOLEAN else make()
    except ValueError as error:
        raise _marked(event, str(error)) from None


@cache
def _resolved(text: str) -> tuple[str, Callable[[], Any]]:
    loader: Any = yaml.SafeLoader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    if tag in (_TIMESTAMP, _MERGE) or _OTHER_BASE.match(text):
        return tag, lambda: text
    return tag, lambda: loader.construct_object(yaml.ScalarNode(tag, text))


def _json(text: str) -> Any:
    """JSON with every number, true and false as the text it is written in."""
    root = json.loads(
        text, object_pairs_hook=_pairs, parse_int=str, parse_float=str, parse_constant=str
    )
    if _SURROGATE.search(text):
        json.dumps(root, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError
    return root


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if "<<" in mapping:
        raise ValueError
    for key, value in mapping.items():
        if value is True or value is False or type(value) is list:
            mapping[key] = _text_of(value)
    return mapping


def _text_of(value: Any) -> Any:
    if type(value) is list:
        return [_text_of(item) for item in value]
    return value if value is not True and value is not False else str(value).lower()


def _lines(text: str, target: tuple[Key, ...]) -> Iterator[int]:
    """Lines of ever longer prefixes of ``target``: the events again, with the path in hand."""
    best_length = -1
    for path, event in _values(text):
        if len(path) > best_length and tuple(path) == target[: len(path)]:
            best_length = len(path)
            yield event.start_mark.line + 1
        if best_length == len(target):
            return


def _values(text: str) -> Iterator[tuple[list[Any], Any]]:
    """The event that begins each value, and key of a mapping, with its path (of a key: that of its
    value). The list is one, and changes."""
    path: list[Any] = []  # per open container: the index in a list, the pending key of a mapping
    events: Iterator[Any] = yaml.parse(text, Loader=LOADER)
    for event in events:
        kind = type(event)
        if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            path.pop()
        elif kind in _VALUES:
            if path and path[-1] is _NO_KEY:
                path[-1] = event.value if kind is yaml.ScalarEvent else None
                yield path, _KeyEvent(event)
                continue
            yield path, event
            if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                path.append(_NO_KEY if kind is yaml.MappingStartEvent else 0)
                continue
        else:
            continue
        if path:  # a value is complete: on to the next index or key
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else _NO_KEY


class _KeyEvent:
    """A key of a mapping, which is no value."""

    __slots__ = ("start_mark",)

    def __init__(self, event: Any) -> None:
        self.start_mark = event.start_mark
