"""XML as a tree of elements that know their lines, and what Pegasus's files have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

Key = str | int
Lines = dict[tuple[Key, ...], int]
Converted = tuple[dict[str, Any], Lines]
"""A document's values, and the lines of those that messages name."""


class FormError(ValueError):
    """A file is not written as its form asks. ``line`` is from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


@dataclass(slots=True)
class Element:
    """An element, without the prefix of its namespace; ``content`` in the order of the file."""

    name: str
    attributes: dict[str, str]
    line: int
    content: list[Element | str] = field(default_factory=list)

    def children(self, *names: str) -> Iterator[Element]:
        """The elements directly inside it that have one of these names."""
        for child in self.content:
            if isinstance(child, Element) and child.name in names:
                yield child

    @property
    def text(self) -> str:
        """What is directly inside it."""
        return "".join(part for part in self.content if isinstance(part, str)).strip()

    def values(self, **names: str) -> dict[str, str]:
        """The attributes that are there and not empty, by the names they have in YAML, in which
        ``_`` stands for a point."""
        attributes = (
            (key.replace("_", "."), self.attributes.get(name)) for key, name in names.items()
        )
        return {key: value for key, value in attributes if value}


def parser(text: str) -> tuple[expat.XMLParserType, bytes]:
    """A parser for a text, and the bytes to give it. It takes no document type: entities of its own
    could stand for more than fits into memory."""
    made = expat.ParserCreate("utf-8")

    def refuse(*_: object) -> None:
        raise FormError(made.CurrentLineNumber, "found a document type, expected none")

    made.StartDoctypeDeclHandler = refuse
    made.buffer_text = True
    return made, text.encode()


def parsed(text: str) -> Element:
    """The root of an XML text. Raises FormError."""
    xml, data = parser(text)
    top = Element("", {}, 1)
    open_ones = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        element = Element(name.rpartition(":")[2], attributes, xml.CurrentLineNumber)
        open_ones[-1].content.append(element)
        open_ones.append(element)

    def end(_name: str) -> None:
        open_ones.pop()

    def characters(data: str) -> None:
        open_ones[-1].content.append(data)

    xml.StartElementHandler, xml.EndElementHandler = start, end
    xml.CharacterDataHandler = characters
    parse(xml, data)
    return next(child for child in top.content if isinstance(child, Element))


def parse(xml: expat.XMLParserType, data: bytes) -> None:
    """Have a parser read all of a file. Raises FormError."""
    try:
        xml.Parse(data, True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        raise FormError(error.lineno, f"not valid XML: {problem}") from None


def profiles(element: Element) -> dict[str, dict[str, dict[str, str]]]:
    """``profiles`` as YAML has them, of the ``<profile>`` elements, where there are any."""
    by_namespace: dict[str, dict[str, str]] = {}
    for profile in element.children("profile"):
        namespace = profile.attributes.get("namespace", "").lower()
        by_namespace.setdefault(namespace, {})[profile.attributes.get("key", "")] = profile.text
    return {"profiles": by_namespace} if by_namespace else {}


def system(element: Element) -> dict[str, str]:
    """The system of a site or program."""
    known = element.values(
        arch="arch", os_type="os", os_release="osrelease", os_version="osversion"
    )
    return {key: value.lower() if key == "os.type" else value for key, value in known.items()}
