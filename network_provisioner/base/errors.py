"""Errors that users see.

    AdonError            anything a user can mend; the command line prints it in one line, exit 2
    ├── InputError       a file, argument or request that is not as expected
    │   └── AbsentError  a file that is not there, or is empty
    ├── MissingError     a program, package or privilege that is not there
    └── BrokerError      the broker refused a request or could not be reached

Every message says what was found and what was expected. Code that a workflow runs through (hooks,
plug-ins) never lets any of them fail a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

from collections.abc import Iterable
from itertools import islice

_COMPARED = 5000  # names, and letters of one: among a hundred thousand the closest takes seconds


def printable(message: str) -> str:
    """The message with line breaks and control characters escaped: it may quote a foreign file."""
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


def printable_values(data: Any) -> Any:
    """Plain data with every text in it printable."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {printable_values(key): printable_values(value) for key, value in data.items()}
    return [printable_values(item) for item in data] if isinstance(data, list) else data


class AdonError(Exception):
    """Base of every error that is shown to a user as one line.

    ``code`` is the stable error code that the REST API answers with; "" for what it never meets.
    """

    code = ""


class InputError(AdonError):
    """Input that cannot be used: names the place, what was found and what was expected."""

    code = "bad_request"


class AbsentError(InputError):
    """A file at ``path`` that is to be read, and is not there or has nothing in it."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class MissingError(AdonError):
    """Something needed is not on this machine: names it and how to get it."""


class BrokerError(AdonError):
    """The broker refused or did not answer.

    ``code`` is the stable error code of the REST API, or ``unreachable``.
    """

    def __init__(self, message: str, code: str = "unreachable") -> None:
        super().__init__(message)
        self.code = code


def meant(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean 'x'?`` where a known name is close to what was found, else ``otherwise``."""
    from difflib import get_close_matches  # noqa: PLC0415 - hooks start sooner without it

    close = get_close_matches(str(name)[:_COMPARED], list(islice(known, _COMPARED)), 1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The same behind a sentence: ``, did you mean 'x'?``, else nothing."""
    hint = meant(name, known)
    return f", {hint}" if hint else ""
