"""The priority that a user gives a job: ``condor: priority``, else ``dagman: PRIORITY``.

Pegasus takes a whole number of 32 bits as ``condor: priority`` and counts anything else as 0. It
gives a job without one a number of its own in the submit file, before which HTCondor does not look
at DAGMan's ``PRIORITY``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from site_selector.catalogs.fields import Profiles

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_LIMIT = 1 << 31
EXPECTED = f"a whole number from {-_LIMIT} to {_LIMIT - 1}"
NAMESPACES = ("condor", "dagman")
KEY = "priority"  # in any case


def given_priority(*sources: Profiles, namespaces: Sequence[str] = NAMESPACES) -> str | None:
    """As it is written in the first of several profiles that has one; None where none has."""
    return next(
        (
            value
            for namespace in namespaces
            for profiles in sources
            for key, value in profiles.get(namespace, {}).items()
            if key.lower() == KEY
        ),
        None,
    )


def priority_profiles(flat: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Those among entries such as ``condor.priority``, as Pegasus's properties have them."""
    parts = ((*name.partition(".")[::2], value) for name, value in flat.items())
    return {
        namespace: {KEY: value}
        for namespace, key, value in parts
        if namespace in NAMESPACES and key.lower() == KEY
    }


def is_priority(text: str) -> bool:
    """Whether HTCondor takes it."""
    return bool(_WHOLE.fullmatch(text)) and len(text) < 40 and -_LIMIT <= int(text) < _LIMIT


def own_priority(*sources: Profiles, namespaces: Sequence[str] = NAMESPACES) -> int | None:
    """What it comes to in the first of several profiles that has one; None where none has."""
    text = given_priority(*sources, namespaces=namespaces)
    return None if text is None else int(text) if is_priority(text) else 0
