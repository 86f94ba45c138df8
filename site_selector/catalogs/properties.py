"""Java property files, as Pegasus reads its settings, and ``${NAME}`` in all of its files.

``java.util.Properties.load``: comments with ``#`` or ``!``, logical lines continued by a backslash,
``=``, ``:`` or white space after the key, ``\\uXXXX`` and other escapes; the last of two equal keys
counts. Pegasus then fills ``${name}`` from what it read before, and reads several files in turn.

Starts fast: what Pegasus runs once per job imports this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from reprlib import repr as shown

from network_provisioner.base.errors import InputError, printable

DATA_CONFIGURATION = "condorio"
"""Of Pegasus, unless another is set."""
_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ASCII = 128
_HEX = 4  # digits after \\u
_VARIABLE = re.compile(r"\$\{([-a-zA-Z0-9._]+)\}")
_LINE = re.compile(r"\r\n|\r|\n")

_PLACEHOLDER = re.compile(r"(\\?)\$\{([^}]*)\}")


def is_true(value: str) -> bool:
    """Whether Pegasus takes a setting for true: by these words, or as a number other than 0."""
    word = value.strip().lower()
    return word in ("true", "yes", "on") or (word.isdecimal() and int(word) != 0)


def parse(text: str) -> dict[str, str]:
    """Keys and values of a property file, escapes resolved; ``${...}`` is left as it is.

    Raises ValueError if Java does: a ``\\u`` without four hexadecimal digits.
    """
    return {key: value for _, key, value in entries(text)}


def entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Each setting as it arrives: number of its line, key and value; see :func:`parse`."""
    for number, line in _logical_lines(text):
        key, value = _split(line)
        yield number, _resolved(key), _resolved(value)


def fill(values: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """``values`` with every ``${name}`` filled from ``known``, else from ``values`` themselves,
    else with nothing, as Pegasus does (not nested)."""

    def variable(match: re.Match[str]) -> str:
        return known.get(match[1], values.get(match[1], ""))

    return {key: _VARIABLE.sub(variable, value) for key, value in values.items()}


def unset(value: str, known: Mapping[str, str]) -> str | None:
    """The first name that a value refers to and that is not ``known``, None if all are."""
    return next((name for name in _VARIABLE.findall(value) if name not in known), None)


def escape(value: str) -> str:
    """A value as in a file: :func:`parse` gives it back whole. ASCII, because Pegasus 4
    and 5 do not agree on the encoding of the file."""
    out = value.replace("\\", "\\\\")
    for letter, char in _ESCAPES.items():
        out = out.replace(char, "\\" + letter)
    words = out.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(words[i : i + 2], "big") for i in range(0, len(words), 2)]
    out = "".join(chr(unit) if unit < _ASCII else f"\\u{unit:04x}" for unit in units)
    return "\\" + out if out.startswith(" ") else out


def escape_key(key: str) -> str:
    """A key as in a file."""
    return re.sub(r"[=: #!]", r"\\\g<0>", escape("x" + key)[1:])


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with content, continued ones joined, without their leading white space; each with the
    number of its last natural line."""
    joined, number = "", 0
    for number, natural in enumerate(_LINE.split(text), start=1):
        line = natural.lstrip(_SPACE)
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield number, joined + line
        joined = ""
    if joined:
        yield number, joined


def _split(line: str) -> tuple[str, str]:
    end, escaped = len(line), False
    for i, char in enumerate(line):
        if not escaped and char in "=:" + _SPACE:
            end = i
            break
        escaped = char == "\\" and not escaped
    rest = line[end:].lstrip(_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACE)
    return line[:end], rest


def _resolved(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    i = 0
    while i < len(text):
        char = text[i]
        i += 1
        if char == "\\" and i < len(text):
            char = text[i]
            i += 1
            if char == "u":
                digits = text[i : i + _HEX]
                if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                    raise ValueError(
                        f"found \\u{digits}, expected four hexadecimal digits after it"
                    )
                char = chr(int(digits, 16))
                i += _HEX
            else:
                char = _ESCAPES.get(char, char)
        elif char == "\\":
            break  # a lone backslash at the very end: Java drops it
        out.append(char)
    # Characters beyond the basic plane come as two \\u.
    return "".join(out).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def expanded(text: str, name: str, variables: Mapping[str, str]) -> str:
    """``text`` with its variables put in, as Pegasus reads every file (VariableExpander.java):
    in comments too, names in any case, values once more, and ``\\${`` stands for ``${``.

    Raises InputError with ``name`` and line for a variable that is not set.
    """
    if "${" not in text:
        return text
    in_any_case = {key.lower(): value for key, value in variables.items()}

    def put_in(line: str, number: int, around: tuple[str, ...] = ()) -> str:
        def value_of(match: re.Match[str]) -> str:
            if match[1]:
                return "${" + match[2] + "}"
            variable = match[2].partition(":-")[0]
            value = variables.get(variable, in_any_case.get(variable.lower()))
            if value is None or variable in around:
                problem = "is not set" if value is None else "stands for itself"
                raise InputError(
                    f"{name}:{number}: variable {printable(shown(variable))} {problem}, expected a "
                    "value in the environment, or as 'env.…' in Pegasus's properties"
                )
            return put_in(value, number, (*around, variable)) if "${" in value else value

        return _PLACEHOLDER.sub(value_of, line) if "${" in line else line

    return "\n".join(put_in(line, number) for number, line in enumerate(text.split("\n"), 1))


def escaped(text: str) -> str:
    """``text`` so that :func:`expanded` gives it back."""
    return text.replace("${", "\\${")
