"""Ids that are asked for again: ``ID``, then ``ID.2``, ``ID.3``, … Pure but for the look-up.

A workflow that is run again asks by the same ids, and each run has transits of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from network_provisioner.errors import BrokerError
from network_provisioner.model import ENDED, Transit

MOST = 100  # of one id; more is a loop, and no workflow that is run again


def latest(
    base: str, find: Callable[[str], Transit | None], most: int = MOST
) -> tuple[str, Transit | None]:
    """The first round of an id that is unknown, or whose transit has not ended; with the transit.

    Rounds come one after the other, so they are not all looked at. Raises BrokerError ``conflict``
    where all of ``most`` rounds have ended, and what ``find`` raises.
    """

    def open_at(number: int) -> tuple[str, Transit | None] | None:
        name = round_name(base, number)
        found = find(name)
        return None if found is not None and found.state in ENDED else (name, found)

    ended, number = 0, 1  # of the last that has, and of one that may not have
    while (answer := open_at(number)) is None:
        if number == most:
            raise BrokerError(
                f"id {base!r} was asked for {most} times before, expected another one", "conflict"
            )
        ended, number = number, min(2 * number, most)
    while number - ended > 1:
        middle = (ended + number) // 2
        found = open_at(middle)
        if found is None:
            ended = middle
        else:
            number, answer = middle, found
    return answer


def round_name(base: str, number: int) -> str:
    """The id of a round, counted from 1."""
    return base if number == 1 else f"{base}.{number}"
