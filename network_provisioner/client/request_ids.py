"""Ids that are asked for again: ``ID``, then ``ID.2``, ``ID.3``, … Pure but for the look-up.

A workflow that is run again asks by the same ids, and each run has transits of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import ENDED, Transit

MOST = 100  # of one id; more is a loop, and no workflow that is run again


def latest(
    base: str,
    find: Callable[[str], Transit | None],
    most: int = MOST,
    user: str | None = None,
) -> tuple[int, Transit | None]:
    """The number of the first of ``ID``, ``ID.2``, ``ID.3``, … that is unknown, or whose transit
    has not ended; with the transit. Another than this ``user``'s (None: anybody's) counts as ended:
    nobody is kept from an id by who takes it first.

    They come one after the other, so they are not all looked at. Raises BrokerError ``conflict``
    where all of ``most`` have ended, and what ``find`` raises.
    """

    def has_ended(transit: Transit | None) -> bool:
        if transit is None:
            return False
        return transit.state in ENDED or user not in (None, transit.request.user)

    ended, number = 0, 1  # of the last that has, and of one that may not have
    while has_ended(answer := find(numbered(base, number))):
        if number == most:
            raise BrokerError(
                f"id {base!r} was asked for {most} times before, expected another one", "conflict"
            )
        ended, number = number, min(2 * number, most)
    while number - ended > 1:
        middle = (ended + number) // 2
        transit = find(numbered(base, middle))
        if has_ended(transit):
            ended = middle
        else:
            number, answer = middle, transit
    return number, answer


def numbered(base: str, number: int) -> str:
    """The id that is asked for the ``number``-th time, counted from 1."""
    return base if number == 1 else f"{base}.{number}"
