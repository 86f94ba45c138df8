"""What somebody may have meant who wrote a name that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

_COMPARED = 5000  # names, and letters of one: among a hundred thousand the closest takes seconds


def meant(found: object, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean 'x'?`` where a known name is close to what was found, else ``otherwise``."""
    from difflib import get_close_matches  # noqa: PLC0415 - hooks start sooner without it

    close = get_close_matches(str(found)[:_COMPARED], list(islice(known, _COMPARED)), 1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def did_you_mean(found: object, known: Iterable[str]) -> str:
    """The same behind a sentence: ``, did you mean 'x'?``, else nothing."""
    hint = meant(found, known)
    return f", {hint}" if hint else ""
