"""Transformation catalogs as text:

tr soykb::bwa_mem:1.0 {              # namespace and version may be missing
    profile pegasus "runtime" "60"
    site mu { pfn "/opt/bwa" arch "x86_64" os "linux" type "INSTALLED" container "bwa" }
}
cont bwa { type "docker" image "docker:///biocontainers/bwa" mount "/data:/data" }
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from site_selector.catalogs.pegasus4.elements import Converted, FormError, Lines

_TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|#[^\n]*)|(?P<line>\n)|(?P<quoted>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<brace>[{}])|(?P<word>[^\s{}\"#]+)"
)
_ESCAPE = re.compile(r"\\(.)")
_SITE = {"pfn": "pfn", "arch": "arch", "os": "os.type", "type": "type", "container": "container",
         "osrelease": "os.release", "osversion": "os.version"}  # fmt: skip
_CONTAINER = {"type": "type", "image": "image", "image_site": "image.site",
              "dockerfile": "dockerfile"}  # fmt: skip
_IN_ANY_CASE = ("type", "os")


class _Token(NamedTuple):
    kind: str  # "quoted", "brace" or "word"
    text: str
    line: int


def read(text: str) -> Converted:
    """The programs and containers of a catalog. Raises FormError."""
    reader = _Reader(text)
    root: dict[str, Any] = {"pegasus": "5.0", "transformations": [], "containers": []}
    lines: Lines = {(): 1}
    while (token := reader.next()) is not None:
        kind = {"tr": "transformations", "cont": "containers"}.get(token.text)
        if kind is None:
            raise FormError(token.line, f"found {token.text!r}, expected 'tr' or 'cont'")
        lines[kind, len(root[kind])] = token.line
        name = reader.take("word", "a name")
        made = _program(name) if kind == "transformations" else {"name": name}
        reader.block(made, {} if kind == "transformations" else _CONTAINER)
        root[kind].append(made)
    return root, lines


def _program(name: str) -> dict[str, Any]:
    namespace, separator, rest = name.rpartition("::")
    short, _, version = rest.partition(":")
    made = {"namespace": namespace if separator else "", "name": short, "version": version}
    return {key: value for key, value in made.items() if value}


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = self._read(text)
        self._line = 1

    def _read(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise FormError(line, f"found {text[at : at + 20]!r}, expected text in quotes")
            at, kind = token.end(), str(token.lastgroup)
            if kind == "line":
                line += 1
            elif kind == "quoted":
                yield _Token(kind, _ESCAPE.sub(r"\1", token[0][1:-1]), line)
            elif kind != "skip":
                yield _Token(kind, token[0], line)

    def next(self) -> _Token | None:
        """The next token; None at the end."""
        token = next(self._tokens, None)
        self._line = token.line if token is not None else self._line
        return token

    def take(self, kind: str, what: str) -> str:
        """The text of the next token, which must be of this kind."""
        token = self.next()
        if token is None or token.kind != kind:
            shown = "the end" if token is None else repr(token.text)
            raise FormError(self._line, f"found {shown}, expected {what}")
        return token.text

    def block(self, made: dict[str, Any], names: dict[str, str]) -> None:
        """What is in braces, into ``made``; ``names`` are those of its values in YAML."""
        if self.take("brace", "'{'") != "{":
            raise FormError(self._line, "found '}', expected '{'")
        while (word := self.next()) is not None and word.text != "}":
            if word.text == "profile":
                namespace = self.take("word", "a namespace")
                key = self.take("quoted", "a key in quotes")
                value = self.take("quoted", "a value in quotes")
                made.setdefault("profiles", {}).setdefault(namespace, {})[key] = value
            elif word.text == "metadata":
                key = self.take("quoted", "a key in quotes")
                made.setdefault("metadata", {})[key] = self.take("quoted", "a value in quotes")
            elif word.text == "site" and names is not _CONTAINER and names is not _SITE:
                site: dict[str, Any] = {"name": self.take("word", "a site")}
                self.block(site, _SITE)
                made.setdefault("sites", []).append(site)
            elif word.text == "mount" and names is _CONTAINER:
                made.setdefault("mounts", []).append(self.take("quoted", "a mount in quotes"))
            elif word.text in names:
                value = self.take("quoted", "a value in quotes")
                known = value.lower() if word.text in _IN_ANY_CASE else value
                made[names[word.text]] = known
            else:
                expected = ", ".join(["profile", "metadata", *(names or ["site"])])
                raise FormError(word.line, f"found {word.text!r}, expected one of {expected}")
        if word is None:
            raise FormError(self._line, "found the end, expected '}'")
