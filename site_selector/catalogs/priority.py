"""The priority that a user gives a job: ``dagman: PRIORITY``, else ``condor: priority``.

HTCondor takes a whole number of 32 bits. Pegasus counts anything else as 0.
"""

from __future__ import annotations

import re

from site_selector.catalogs.fields import Profiles

_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_LIMIT = 1 << 31
EXPECTED = f"a whole number from {-_LIMIT} to {_LIMIT - 1}"


def given_priority(profiles: Profiles) -> str | None:
    """As it is written; None where there is none."""
    for namespace in ("dagman", "condor"):
        for key, value in profiles.get(namespace, {}).items():
            if key.lower() == "priority":
                return value
    return None


def is_priority(text: str) -> bool:
    """Whether HTCondor takes it."""
    return bool(_WHOLE.fullmatch(text)) and len(text) < 40 and -_LIMIT <= int(text) < _LIMIT


def own_priority(*sources: Profiles) -> int | None:
    """What it comes to in the first of several profiles that has one; None where none has."""
    text = next((text for text in map(given_priority, sources) if text is not None), None)
    return None if text is None else int(text) if is_priority(text) else 0
