"""The ways in which a workflow is planned and run to be compared, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

RANDOM, HEFT = "pegasus-random", "pegasus-heft"
FIRST = "adon-first"


@dataclass(frozen=True, slots=True)
class Way:
    """``selector``: of Pegasus, which then runs without ADON; "" for ADON, that has seen as many
    runs as stand before it in a round."""

    name: str
    selector: str = ""

    @property
    def by_adon(self) -> bool:
        """Whether ADON maps, reserves and learns."""
        return not self.selector


PEGASUS = (Way(RANDOM, "Random"), Way(HEFT, "Heft"))
ADON = (Way(FIRST), Way("adon-second"), Way("adon-third"), Way("adon-fourth"))
WAYS = (*PEGASUS, *ADON)


def in_round(number: int) -> tuple[Way, ...]:
    """All ways in the order of round ``number``: Pegasus's stand among ADON's runs, in turns, so
    that whatever changes on the machine meets all of them."""
    one, other = PEGASUS if number % 2 else PEGASUS[::-1]
    first, *learnt = ADON
    return (one, first, learnt[0], other, *learnt[1:])
