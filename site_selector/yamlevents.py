"""Any YAML, from the events of PyYAML's C parser: the tree of its values, and where one stands.

Dictionaries, lists and strings are made of the events directly: an order of magnitude faster than
PyYAML's loaders, and no objects that a file might ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from reprlib import repr as shown
from typing import Any

import yaml

from network_provisioner.errors import InputError, printable
from site_selector.blocktext import NULLS, NotPlainError

# A workflow of 100,000 jobs makes 8 million. What is much larger would fill the memory.
MAX_EVENTS = 25_000_000
# Flows within flows take the parser a time that grows with the square of their depth.
MAX_DEPTH = 200

Key = str | int
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONGEST = 2000


def shortened(message: str) -> str:
    """The message as :func:`printable` has it, its middle left out where it is long: names in it
    are the file's."""
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    return printable(message)


def kind_of(value: object) -> str:
    return {dict: "mapping", list: "list", str: "text", type(None): "nothing"}[type(value)]


def build_tree(text: str, name: str, alone: bool = False) -> Any:
    """The tree of a text, from events. Raises InputError and YAMLError; where the text is to stand
    ``alone``, NotPlainError for one with anchors."""
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    builder = _Builder(name)
    for event in islice(events, MAX_EVENTS):
        builder.take(event)
    if next(events, None) is not None:
        raise too_many(name)
    if alone and builder.anchors:
        raise NotPlainError
    return builder.root


def too_many(name: str) -> InputError:
    """The error for a document with more values than memory is meant for."""
    return InputError(f"{name}: found more than {MAX_EVENTS:,} values and brackets, expected less")


class _Builder:
    """The containers that are open while events come in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Any = None
        self.documents = 0
        self.container: Any = None
        self.key: Any = _NO_KEY
        self.stack: list[tuple[Any, Any]] = []
        self.anchors: dict[str, Any] = {}
        self.texts: dict[str, str] = {}  # equal texts are made one

    def take(self, event: Any) -> None:
        """The next event."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value: str | None = event.value
            if value in NULLS and not event.style and event.implicit[0]:
                value = None
            else:
                value = self.texts.setdefault(event.value, event.value)
            if event.anchor:
                self.anchors[event.anchor] = value
            self._place(event, value)
        elif kind is yaml.MappingStartEvent:
            self._open(event, {})
        elif kind is yaml.SequenceStartEvent:
            self._open(event, [])
        elif kind in _ENDS:
            if isinstance(self.container, dict) and "<<" in self.container:
                _merge(self.container)
            self.container, self.key = self.stack.pop()
        elif kind is yaml.AliasEvent:
            if event.anchor not in self.anchors:
                raise self._error(event, f"alias *{event.anchor} has no anchor before it")
            self._place(event, self.anchors[event.anchor])
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                raise self._error(event, "a second document, expected one in the file")

    def _open(self, event: Any, value: Any) -> None:
        if event.anchor:
            self.anchors[event.anchor] = value
        self._place(event, value)
        if len(self.stack) >= MAX_DEPTH:
            raise self._error(event, f"more than {MAX_DEPTH} levels, expected fewer")
        self.stack.append((self.container, self.key))
        self.container, self.key = value, _NO_KEY

    def _place(self, event: Any, value: Any) -> None:
        container = self.container
        if container is None:
            self.root = value
        elif isinstance(container, list):
            container.append(value)
        elif self.key is _NO_KEY:
            self.key = self._key(event, value)
        else:
            container[self.key] = value
            self.key = _NO_KEY

    def _key(self, event: Any, value: Any) -> str:
        if value is None:
            return "null"
        if not isinstance(value, str):
            raise self._error(event, f"a {kind_of(value)} as a key, expected text")
        if value in self.container:
            raise self._error(event, f"key {shown(value)} is given twice in one mapping")
        return value

    def _error(self, event: Any, message: str) -> InputError:
        return InputError(shortened(f"{self.name}:{event.start_mark.line + 1}: {message}"))


_NO_KEY = object()
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def _merge(container: dict[str, Any]) -> None:
    """YAML's merge key: values of ``<<`` hold where the mapping itself says nothing."""
    sources = container.pop("<<")
    for source in sources if isinstance(sources, list) else [sources]:
        if isinstance(source, dict):
            for key, value in source.items():
                container.setdefault(key, value)


def find_line(text: str, target: tuple[Key, ...]) -> int:
    """Walk the events again with the path in hand, up to ``target``, else to its nearest prefix."""
    line = 1
    with suppress(yaml.YAMLError):  # JSON that is no YAML: the line of what was found so far
        for line in _matches(text, target):  # noqa: B007
            pass
    return line


def _matches(text: str, target: tuple[Key, ...]) -> Iterator[int]:
    """Lines of ever longer prefixes of ``target``."""
    best_length = -1
    path: list[Any] = []  # per open container: the index in a list, the pending key of a mapping
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    for event in events:
        kind = type(event)
        is_end = kind in _ENDS
        if is_end:
            path.pop()
        elif kind in _VALUES:
            is_key = bool(path) and path[-1] is _NO_KEY
            if is_key:
                path[-1] = event.value if kind is yaml.ScalarEvent else None
            if len(path) > best_length and tuple(path) == target[: len(path)]:
                best_length = len(path)
                yield event.start_mark.line + 1
            if best_length == len(target):
                return
            if is_key:
                continue
            if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                path.append(_NO_KEY if kind is yaml.MappingStartEvent else 0)
                continue
        else:
            continue
        if path:  # a value is complete: on to the next index or key
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else _NO_KEY


_VALUES = (yaml.ScalarEvent, yaml.AliasEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent)
