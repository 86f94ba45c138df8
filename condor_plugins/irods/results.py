"""What HTCondor hands to a transfer plug-in, and what it takes from it, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from condor_plugins.jobs.jobad import Value, line

Result = Mapping[str, "Value | Mapping[str, Value]"]
_TOKEN = re.compile(r'[\[\]]|(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def wanted(ads: str) -> list[tuple[str, str]]:
    """URL and local name of each ``[ Url = "…"; LocalFileName = "…" ]``."""
    files: list[dict[str, str]] = []
    for found in _TOKEN.finditer(ads):
        if found[0] == "[":
            files.append({})
        elif found[1]:
            files[-1][found[1].lower()] = _ESCAPED.sub(r"\1", found[2])
    return [(file["url"], file["localfilename"]) for file in files]


def failed(url: str, why: str) -> Result:
    """Of a file that was not even tried."""
    return {"TransferUrl": url, "TransferSuccess": False, "TransferError": why}


def text(result: Result) -> str:
    """The ad of one file."""
    return f"[ {_inner(result)}]\n"


def _inner(ad: Result) -> str:
    lines = (
        f"{name} = [ {_inner(value)}]" if isinstance(value, Mapping) else line(name, value).rstrip()
        for name, value in ad.items()
    )
    return "".join(f"{one}; " for one in lines)
