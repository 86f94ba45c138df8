"""How many streams one transfer has. Pure."""

from __future__ import annotations

from math import ceil

from condor_plugins.jobs.jobad import JobAd, number

CHUNK = 8 * 2**20  # what a stream takes at a time
BLOCK = 2 * 2**20  # what one request of iRODS's protocol moves
USUAL, MOST = 3, 16  # python-irodsclient's own default, and what a zone can be asked for


def streams(ad: JobAd, size: int, window: int) -> int:
    """For a file of ``size`` bytes, where TCP has at most ``window`` bytes under way.

    The job's ad says how many (``AdonStreams``, the template's), or what its path can do
    (``AdonRateBps``, ``AdonRttSeconds``): enough to fill it, and no fewer than usual. iRODS asks
    for one block after the other, so each costs a round trip for the request, and one for each
    window that it fills, in which the other streams use the path.
    """
    told, rate, rtt = (number(ad, f"Adon{name}") for name in ("Streams", "RateBps", "RttSeconds"))
    count = USUAL
    if told is not None and told >= 1:
        count = int(told)
    elif rate is not None and rtt is not None:
        count = max(USUAL, 1 + ceil(rate / 8 * rtt * (1 / BLOCK + 1 / window)))
    return max(1, min(count, MOST, ceil(size / CHUNK)))
