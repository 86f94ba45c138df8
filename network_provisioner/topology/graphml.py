"""GraphML as attributes of nodes and edges, read and written.

Only what a network needs: one undirected graph, attributes with their defaults. Other programs put
drawings and descriptions beside it, which are passed over. A document type is refused, and with it
every entity that could make a small file large or bring in another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from network_provisioner.base.errors import InputError

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_HAS_DATA = ("node", "edge")
_DEEPEST = 100  # levels of elements; drawings inside take ten


def read_graphml(text: bytes, where: str) -> dict[str, Any]:
    """Node-link data (:mod:`~.nodelink`), all values as text. Raises InputError naming ``where``
    and the line."""
    reader = _Reader(where)
    try:
        reader.parser.Parse(text, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise InputError(f"{where}, line {error.lineno}: {what}, expected GraphML") from None
    except (ValueError, LookupError) as error:
        raise InputError(f"{where}: {error}, expected GraphML in UTF-8") from None
    return reader.result()


def write_graphml(data: Mapping[str, Any]) -> str:
    """The text for node-link data; mappings become JSON."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f'<graphml xmlns="{_NAMESPACE}">']
    keys: dict[tuple[str, str], str] = {}
    for domain, items in (("node", data["nodes"]), ("edge", data["edges"])):
        for name, kind in sorted(_types(items).items()):
            keys[domain, name] = f"{domain[0]}{len(keys)}"
            lines.append(
                f'  <key id="{keys[domain, name]}" for="{domain}" attr.name={quoteattr(name)} '
                f'attr.type="{kind}"/>'
            )
    lines.append('  <graph edgedefault="undirected">')
    for domain, items in (("node", data["nodes"]), ("edge", data["edges"])):
        for item in items:
            ends = " ".join(f"{k}={quoteattr(str(item[k]))}" for k in _ENDS if k in item)
            lines.append(f"    <{domain} {ends}>")
            lines += [
                f'      <data key="{keys[domain, name]}">{_text(value)}</data>'
                for name, value in item.items()
                if name not in _ENDS
            ]
            lines.append(f"    </{domain}>")
    return "\n".join((*lines, "  </graph>", "</graphml>", ""))


_ENDS = ("id", "source", "target")


def _types(items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, set[type]] = {}
    for item in items:
        for name, value in item.items():
            if name not in _ENDS:
                found.setdefault(name, set()).add(type(value))
    names = ((bool, "boolean"), (int, "long"), (float, "double"))
    types = {}
    for name, kinds in found.items():
        single = [word for kind, word in names if kinds == {kind}]
        types[name] = single[0] if single else "double" if kinds == {int, float} else "string"
    return types


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return escape(json.dumps(value) if isinstance(value, Mapping) else str(value))


class _Reader:
    """Takes the parser's events; what it does not know it passes over with all that is inside."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._keys: dict[str, tuple[str, str]] = {}  # id: what it is for, the attribute's name
        self._defaults: dict[str, str] = {}
        self._open: list[str] = []  # the elements around
        self._item: dict[str, Any] = {}
        self._key = ""
        self._words: list[str] = []
        self._directed: str | None = None
        self._found: dict[str, list[dict[str, Any]]] = {"node": [], "edge": []}
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def result(self) -> dict[str, Any]:
        if self._directed is None:
            raise InputError(f"{self._where}: found no <graph>, expected one")
        for domain, items in self._found.items():
            usual = {
                name: self._defaults[key]
                for key, (what, name) in self._keys.items()
                if key in self._defaults and what in (domain, "all")
            }
            for item in items:
                for name, value in usual.items():
                    item.setdefault(name, value)
        return {
            "directed": self._directed == "directed",
            "nodes": self._found["node"],
            "edges": self._found["edge"],
        }

    def _refuse(self, what: str) -> InputError:
        return InputError(f"{self._where}, line {self.parser.CurrentLineNumber}: {what}")

    def _doctype(self, *_: object) -> None:
        raise self._refuse("found a document type, expected plain GraphML without one")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(" ")[2]
        parent = self._open[-1] if self._open else ""
        self._open.append(name)
        if len(self._open) > _DEEPEST:
            raise self._refuse(f"found more than {_DEEPEST} levels, expected nodes and edges")
        if not parent and name != "graphml":
            raise self._refuse(f"found <{name:.40}>, expected <graphml>")
        if (parent, name) == ("graphml", "key"):
            self._key = self._needed(name, attributes, "id")
            named = attributes.get("attr.name", self._key)
            self._keys[self._key] = (attributes.get("for", "all"), named)
        elif (parent, name) in (("key", "default"), *((item, "data") for item in _HAS_DATA)):
            self._words = []
            if name == "data":
                self._key = self._needed(name, attributes, "key")
                if self._key not in self._keys:
                    raise self._refuse(f"found data of {self._key!r:.80}, expected a known <key>")
        elif name == "graph":
            self._graph(parent, attributes)
        elif (parent, name) == ("graph", "hyperedge"):
            raise self._refuse("found <hyperedge>, expected edges between two nodes")
        elif parent == "graph" and name in _HAS_DATA:
            ends = ("id",) if name == "node" else ("source", "target")
            self._item = {end: self._needed(name, attributes, end) for end in ends}
            self._found[name].append(self._item)
            if attributes.get("directed") == "true":
                self._directed = "directed"

    def _graph(self, parent: str, attributes: dict[str, str]) -> None:
        if self._directed is not None or parent != "graphml":
            raise self._refuse("found a second <graph>, expected one")
        self._directed = attributes.get("edgedefault", "undirected")

    def _end(self, tag: str) -> None:
        name = self._open.pop()
        parent = self._open[-1] if self._open else ""
        if (parent, name) == ("key", "default"):
            self._defaults[self._key] = "".join(self._words)
        elif name == "data" and parent in _HAS_DATA:
            attribute = self._keys[self._key][1]
            if attribute in _ENDS:
                return  # the element says it itself
            if attribute in self._item:
                raise self._refuse(f"found {attribute!r:.80} twice in one <{parent}>")
            self._item[attribute] = "".join(self._words)

    def _characters(self, words: str) -> None:
        if self._open and self._open[-1] in ("data", "default"):
            self._words.append(words)

    def _needed(self, name: str, attributes: dict[str, str], key: str) -> str:
        if key not in attributes:
            raise self._refuse(f"found <{name}> without {key!r}")
        return attributes[key]
