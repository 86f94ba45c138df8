"""The ways in which a workflow is planned and run to be compared, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

from network_provisioner.base.errors import InputError


@dataclass(frozen=True, slots=True)
class Way:
    """``selector``: of Pegasus, "" for ADON's mapping. ``hooks``: whether transfers get paths and
    bandwidth. What a way that ``learns`` measures is known to the next one of its round."""

    name: str
    selector: str = ""
    hooks: bool = False
    learns: bool = False

    @property
    def by_adon(self) -> bool:
        """Whether ADON maps, and so expects an end."""
        return not self.selector


PEERS = (Way("random", "Random"), Way("heft", "Heft"))
"""Pegasus alone."""
PARTS = (Way("heft-network", "Heft", hooks=True), Way("adon-mapping"))
"""Either half of ADON."""
FIRST, LEARNED = ADON = (
    Way("adon-first", hooks=True, learns=True),
    Way("adon-learned", hooks=True, learns=True),
)
WAYS = (*PEERS, *PARTS, *ADON)


def in_round(number: int) -> tuple[Way, ...]:
    """All ways in the order of round ``number``: others stand among ADON's runs, in turns, so that
    whatever changes on the machine meets all of them."""
    turn = 1 if number % 2 else -1
    peer, other_peer = PEERS[::turn]
    part, other_part = PARTS[::turn]
    return (peer, FIRST, part, other_peer, LEARNED, other_part)


def way_of(name: str) -> Way:
    """By its name. Raises InputError."""
    for way in WAYS:
        if way.name == name:
            return way
    raise InputError(f"way: found {name!r}, expected one of {', '.join(w.name for w in WAYS)}")
