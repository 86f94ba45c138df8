"""Java's regular expressions, in which Pegasus's replica catalogs are written, as Python's.

Most is the same in both. Put otherwise are named groups, ``\\p{…}``, ``\\Q…\\E``, some escapes, and
character classes inside classes.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

# \p{…} of POSIX, which Java takes for ASCII, as the inside of a class.
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9",
    "Alnum": "a-zA-Z0-9", "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": r"\x20-~",
    "Blank": r"\x20\t", "Cntrl": r"\x00-\x1f\x7f", "XDigit": "0-9a-fA-F",
    "Space": r"\x20\t\n\x0b\f\r",
}  # fmt: skip
_NAMED = {
    "Alphabetic": "L", "Letter": "L", "Lowercase": "Ll", "Uppercase": "Lu", "Digit": "Nd",
    "Punctuation": "P", "LowerCase": "Ll", "UpperCase": "Lu", "LetterOrDigit": "LN",
}  # fmt: skip
_ESCAPES = {
    "z": r"\Z", "Z": r"(?=\n?\Z)", "e": r"\x1b", "R": r"(?:\r\n|[\n-\r\x85\u2028\u2029])",
    "h": r"[ \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]", "H": r"[^ \t\xa0]",
    "G": r"\A", "v": r"[\n-\r\x85\u2028\u2029]", "V": r"[^\n-\r\x85\u2028\u2029]",
}  # fmt: skip
_PROPERTY = re.compile(r"\\([pP])(?:\{\^?([A-Za-z_=]+)\}|([A-Z]))")
_FLAGS = re.compile(r"\(\?[a-zA-Z]*\)")


def compiled(pattern: str) -> re.Pattern[str]:
    """A Java pattern. Raises re.error for what cannot be read."""
    try:
        return re.compile(_Translation(pattern).whole(), re.ASCII)
    except (OverflowError, RecursionError) as error:
        raise re.error(str(error)) from None


class _Translation:
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0

    def whole(self) -> str:
        out: list[str] = []
        flags = ""  # what ends the groups of flags, at the end of the pattern or the group around
        opened: list[str] = []
        while self.at < len(self.text):
            rest = self.text[self.at :]
            if rest.startswith("\\"):
                out.append(self._escape())
            elif rest.startswith("["):
                out.append(self._class())
            elif match := re.match(r"\(\?<([A-Za-z][A-Za-z0-9]*)>", rest):
                opened.append(flags)
                flags = ""
                out.append(f"(?P<{match[1]}>")
                self.at += match.end()
            elif match := _FLAGS.match(rest):
                letters = "".join(sorted(set(match[0][2:-1]) - set("udU")))
                if letters:
                    out.append(f"(?{letters}:")
                    flags = ("\n)" if "x" in letters else ")") + flags  # a comment ends in its line
                self.at += match.end()
            elif rest[0] in "()":
                if rest[0] == "(":
                    opened.append(flags)
                    flags = ""
                out.append(flags + rest[0] if rest[0] == ")" else "(")
                if rest[0] == ")":
                    flags = opened.pop() if opened else ""
                self.at += 1
            else:
                out.append(rest[0])
                self.at += 1
        return "".join(out) + flags

    def _escape(self, inside: bool = False) -> str:
        """What begins with a backslash; ``inside`` a class."""
        rest = self.text[self.at :]
        if match := _PROPERTY.match(rest):
            self.at += match.end()
            return _property(match[2] or match[3], (match[1] == "P") != ("^" in match[0]), inside)
        if match := re.match(r"\\k<([A-Za-z][A-Za-z0-9]*)>", rest):
            self.at += match.end()
            return f"(?P={match[1]})"
        if match := re.match(r"\\Q(.*?)(?:\\E|\Z)", rest, re.DOTALL):
            self.at += match.end()
            return re.escape(match[1])
        if match := re.match(r"\\x\{([0-9a-fA-F]{1,6})\}|\\0([0-7]{1,3})|\\c(.)", rest):
            self.at += match.end()
            code = int(match[1], 16) if match[1] else int(match[2], 8) if match[2] else None
            char = chr(ord(match[3]) ^ 64 if code is None else min(code, sys.maxunicode))
            return re.escape(char)
        self.at += 2
        written = rest[:2]
        special = _ESCAPES.get(written[1:], written)
        return special if not inside or special[0] != "[" else special[1:-1]

    def _class(self) -> str:
        """A class as an expression for one character: in Java classes hold others, and ``&&``
        intersects them."""
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        parts: list[list[str]] = [[]]  # what is intersected, each made of alternatives
        plain: list[str] = [""]
        first = True
        while True:
            rest = self.text[self.at :]
            if not rest:
                raise re.error("a character class does not end")
            if rest[0] == "]" and not first:
                break
            if rest.startswith("&&"):
                parts.append([])
                plain.append("")
                self.at += 2
            elif rest[0] == "[":
                parts[-1].append(self._class())
            elif rest[0] == "\\":
                plain[-1] += self._escape(inside=True)
            else:
                plain[-1] += rest[0]
                self.at += 1
            first = False
        self.at += 1
        if len(parts) == 1 and not parts[0]:
            return f"[{'^' * negated}{plain[0]}]"
        each = [
            "(?:" + "|".join([*([f"[{chars}]"] if chars else []), *element]) + ")"
            for chars, element in zip(plain, parts, strict=True)
            if chars or element
        ]
        every = "".join(f"(?={part})" for part in each)
        return f"(?:(?!{every})[\\s\\S])" if negated else f"(?:{every}[\\s\\S])"


def _property(name: str, negated: bool, inside: bool) -> str:
    known = name.removeprefix("Is").removeprefix("java").rpartition("=")[2]
    chars = _POSIX.get(name)
    if chars is None:
        chars = _of_category(_NAMED.get(known, known))
    if not chars:
        raise re.error(f"unknown property {name!r}")
    if inside and negated:
        return _others(chars)
    return chars if inside else f"[{'^' * negated}{chars}]"


@cache
def _others(chars: str) -> str:
    """All characters that are not among those inside a class, as the inside of one."""
    matches = re.compile(f"[{chars}]").match
    return _ranges(c for c in range(sys.maxunicode + 1) if not matches(chr(c)))


@cache
def _of_category(name: str) -> str:
    """The characters of a Unicode category, or of several one-letter ones, as ranges."""
    of = (name,) if not name.isupper() else tuple(name)
    return _ranges(
        c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)).startswith(of)
    )


def _ranges(characters: Iterable[int]) -> str:
    codes = [*characters]
    if not codes:
        return ""
    ends = [i for i, (a, b) in enumerate(pairwise(codes)) if b != a + 1]
    begins = [0, *(i + 1 for i in ends)]
    return "".join(
        f"\\U{codes[a]:08x}-\\U{codes[b]:08x}"
        for a, b in zip(begins, [*ends, len(codes) - 1], strict=True)
    )
