"""What HTCondor hands to a transfer plug-in, and what it takes from it, as text; and how many
streams a transfer has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil

from condor_plugins.jobs.jobad import JobAd, Value, line, number

Result = Mapping[str, "Value | Mapping[str, Value]"]
_TOKEN = re.compile(r'[\[\]]|(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")

CHUNK = 8 * 2**20  # what a stream takes at a time
BLOCK = 2 * 2**20  # what one request of iRODS's protocol moves
USUAL, MOST = 3, 16  # python-irodsclient's own default, and what a zone can be asked for


def wanted_files(ads: str) -> list[tuple[str, str]]:
    """URL and local name of each ``[ Url = "…"; LocalFileName = "…" ]``."""
    files: list[dict[str, str]] = []
    for match in _TOKEN.finditer(ads):
        if match[0] == "[":
            files.append({})
        elif match[1]:
            files[-1][match[1].lower()] = _ESCAPED.sub(r"\1", match[2])
    return [(file["url"], file["localfilename"]) for file in files]


def failed_result(url: str, why: str) -> Result:
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
    return "".join(f"{attribute}; " for attribute in lines)


def streams(ad: JobAd, size: int, window: int) -> int:
    """For a file of ``size`` bytes, where TCP has at most ``window`` bytes under way.

    The job's ad says how many (``AdonStreams``, the template's), or what its path can do
    (``AdonRateBps``, ``AdonRttSeconds``): enough to fill it, and no fewer than usual. iRODS asks
    for one block after the other, so each costs a round trip for the request, and one for each
    window that it fills, in which the other streams use the path.
    """
    template_streams, rate, rtt = (
        number(ad, f"Adon{name}") for name in ("Streams", "RateBps", "RttSeconds")
    )
    count = USUAL
    if template_streams is not None and template_streams >= 1:
        count = int(template_streams)
    elif rate is not None and rtt is not None:
        count = max(USUAL, 1 + ceil(rate / 8 * rtt * (1 / BLOCK + 1 / window)))
    return max(1, min(count, MOST, ceil(size / CHUNK)))
