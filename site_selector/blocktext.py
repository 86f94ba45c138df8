"""Long block-style lists of small mappings, read line by line.

That is what Pegasus's API writes: ``jobs`` and ``jobDependencies`` with thousands of entries alike,
in few shapes of lines that repeat. A general parser makes two objects of every scalar; here a line
seen before costs one look-up, which reads such a file in a quarter of the time.

Only what is beyond doubt is read here. A text is cut at entries of its long lists, and an entry
with any line that is not plain goes to the general parser; so does what remains around the lists,
with a placeholder in the place of each, and where a placeholder does not come back as the value of
its key the cut was wrong and nothing of this holds. Tests compare both ways on all kinds of text.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Line = tuple[int, bool, str | None, Any, int]

# `key: value` with an optional dash before it. Values: what a plain scalar may look like without
# a second thought, and quoted text without escapes. A key longer than 1024 would be none.
_LINE = re.compile(
    r"( +)?(- )?(?:([A-Za-z0-9_][\w.\-]{0,199}):(?: |$))?"
    r"(?:(?!.*(?:: | #|[: ]$))((?:[A-Za-z0-9_./+=(\\$^;<~]|-(?=[!-~]))[!-~ ]*)"
    r"|'((?:[ -&(-~]++|'')*+)'|\"([ !#-\[\]-~]*)\"|(\[\]|\{\}))?$",
    re.ASCII,
)
# A text that begins, after comments and a document marker, with a key in the first column.
_BLOCK = re.compile(r"(?:(?:#[^\n]*+|---)?\n)*+[A-Za-z_][\w.\-]*:[ \n]", re.ASCII)
_HEADER = r"([A-Za-z_][\w.\-]*): *(?:#[^\n]*)?\n(?: *(?:#[^\n]*)?\n)*+( *)- "
_FIRST_HEADER = re.compile(_HEADER, re.ASCII)
_NEXT_HEADER = re.compile(r"\n" + _HEADER, re.ASCII)
_NOTHING = re.compile(r" *(?:#[ -~]*)?\Z")
_NOTHING_MORE, _VALUE, _MORE_TEXT = range(3)
_SKIPPED: Line = (-1, False, None, None, _NOTHING_MORE)  # a blank line or a comment
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_REMEMBERED = 20_000  # lines; those that repeat are back at once after the rest is forgotten
_LONGEST_LINE = 2000
_START_BYTES = 300  # to start the general parser takes as long as to have it read so much


class NotPlainError(Exception):
    """The text is none that this module can read; the general parser decides what it means."""


@dataclass(slots=True)
class Section:
    """A list below a key of the top level: where its entries start in the text.

    ``starts`` has one offset more than entries, the end; ``indent`` is the column of the dashes,
    ``odd`` the entries that had to be read by the general parser.
    """

    key: str
    indent: int
    starts: array[int]
    odd: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.starts) - 1


def read_sections(
    text: str, general: Callable[[str], Any]
) -> tuple[dict[str, Any], dict[str, Section]]:
    """The document's top level and its long lists. ``general`` reads any YAML text by itself, and
    raises NotPlainError for one that another part of the text may refer to.

    Raises NotPlainError, or what ``general`` raises, where the text must be read as a whole.
    """
    sections = _cut(text) if _BLOCK.match(text) else []
    if not sections:
        raise NotPlainError
    skeleton, end = [], 0
    for number, section in enumerate(sections):
        skeleton += [text[end : section.starts[0]], f" {_placeholder(number)}\n"]
        end = section.starts[-1]
    skeleton.append(text[end:])
    if text.find(_placeholder(0)[:-1]) >= 0:
        raise NotPlainError
    root = general("".join(skeleton))
    if not isinstance(root, dict):
        raise NotPlainError
    for number, section in enumerate(sections):
        if root.get(section.key) != _placeholder(number):
            raise NotPlainError
    lines = _Lines()
    for section in sections:
        root[section.key] = _entries(text, section, lines, general)
    return root, {section.key: section for section in sections}


def _placeholder(number: int) -> str:
    return f"adon-list-{number}"


def _cut(text: str) -> list[Section]:
    found: list[Section] = []
    header = _FIRST_HEADER.match(text) or _NEXT_HEADER.search(text)
    while header:
        indent = len(header[2])
        first = header.start(2)
        dash = "\n" + header[2] + "- "
        # The list ends before a line that is neither entry, nor deeper, nor blank or a comment.
        last = re.compile(rf"\n(?! {{{indent + 1}}}| {{{indent}}}- | *(?:#[^\n]*)?(?:\n|\Z))")
        over = last.search(text, first)
        end = over.start() + 1 if over else len(text)
        starts = array("q", [first])
        at = text.find(dash, first, end)
        while at >= 0:
            starts.append(at + 1)
            at = text.find(dash, at + 1, end)
        starts.append(end)
        found.append(Section(header[1], indent, starts))
        header = _NEXT_HEADER.search(text, end - 1)
    return found


def _entries(
    text: str, section: Section, lines: _Lines, general: Callable[[str], Any]
) -> list[Any]:
    starts = section.starts
    found: list[Any] = []
    runs: list[list[int]] = []  # first and last of neighbours that are odd, read together
    for index in range(len(section)):
        try:
            found.append(lines.entry(text[starts[index] : starts[index + 1]], section.indent))
        except NotPlainError:
            found.append(None)
            section.odd.add(index)
            if runs and runs[-1][1] == index - 1:
                runs[-1][1] = index
            else:
                runs.append([index, index])
    if len(runs) * _START_BYTES > len(text):
        raise NotPlainError
    for first, last in runs:
        alone = general(text[starts[first] : starts[last + 1]])
        if not isinstance(alone, list) or len(alone) != last - first + 1:
            raise NotPlainError
        found[first : last + 1] = alone
    return found


def _value(
    plain: str | None, single: str | None, double: str | None, empty: str | None
) -> tuple[Any, int]:
    """The value of a line, in whichever way it is written, and what may follow."""
    if plain is not None:
        return (None, _NOTHING_MORE) if plain in NULLS else (plain, _MORE_TEXT)
    if single is not None:
        return single.replace("''", "'"), _NOTHING_MORE
    if double is not None:
        return double, _NOTHING_MORE
    if empty is not None:
        return ([] if empty == "[]" else {}), _NOTHING_MORE
    return None, _VALUE


class _Lines:
    """What lines mean, remembered, and equal texts made one."""

    def __init__(self) -> None:
        self.known: dict[str, Line] = {}
        self.texts: dict[str, str] = {}

    def scan(self, line: str) -> Line:
        """Column, dash, key, value, and what the lines that follow may add to it."""
        match = _LINE.match(line) if len(line) < _LONGEST_LINE else None
        if match is None:
            if _NOTHING.match(line) is None:
                raise NotPlainError
            return _SKIPPED
        indent, dash, key, *written = match.groups()
        value, after = _value(*written)
        if key is None and after == _VALUE:  # nothing at all
            if dash:
                raise NotPlainError
            return _SKIPPED
        if key is not None:
            if key in NULLS:
                raise NotPlainError
            key = self.texts.setdefault(key, key)
        if isinstance(value, str):
            value = self.texts.setdefault(value, value)
        found = (len(indent) if indent else 0, dash is not None, key, value, after)
        if not isinstance(value, str | None):  # a new one each time: never remembered
            return found
        if len(self.known) >= _REMEMBERED:
            self.known.clear()
        self.known[line] = found
        return found

    def entry(self, chunk: str, indent: int) -> Any:
        """The one entry that ``chunk`` holds. Raises NotPlainError where a line is not plain."""
        known = self.known
        top: list[Any] = []
        box: Any = top  # the innermost container that is open, with its column
        at, is_list = indent, True
        outer: list[tuple[Any, int, bool]] = []
        last: Any = None  # where the value of the line before stands in its container
        before = _NOTHING_MORE
        for line in chunk.split("\n"):
            found = known.get(line) or self.scan(line)
            column, dash, key, value, after = found
            if key is None and not dash:  # blank, a comment, or text that goes on
                if column >= 0:
                    if column <= at or not before == after == _MORE_TEXT:
                        raise NotPlainError
                    box[last] = f"{box[last]} {value}"
                before &= after | _VALUE
                continue
            if before == _VALUE and (column > at or (dash and column == at)):
                outer.append((box, at, is_list))
                new: Any = [] if dash else {}
                box[last] = new
                box, at, is_list = new, column, dash
            else:  # what lies deeper is complete, and so is a list where a key stands in its column
                while outer and (at > column or (at == column and is_list and not dash)):
                    box, at, is_list = outer.pop()
            if at != column or is_list != dash:
                raise NotPlainError
            if key is None:
                box.append(value)
            elif dash:
                outer.append((box, at, is_list))
                new = {key: value}
                box.append(new)
                box, at, is_list = new, column + 2, False
            elif key in box:
                raise NotPlainError
            else:
                box[key] = value
            last, before = -1 if key is None else key, after
        return top[0]
