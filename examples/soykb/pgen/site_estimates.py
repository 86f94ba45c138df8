"""What the example's administrator believes about each site, and where each program is installed.

The estimates are first guesses, given to site selection as ``pegasus: adon.*`` profiles. They are
meant to be wrong in places: once measured, times and rates take their place.
"""

from __future__ import annotations

from examples.workflows.catalogs import SiteEstimate
from pgen.sites import DATA_STORE, EXECUTION

NAMESPACE = "soykb"
SITE_ESTIMATES = {
    "iplant": SiteEstimate(rate="5 MB/s", queue_wait="5 s"),
    "mu": SiteEstimate(rate="5 MB/s", queue_wait="3 s"),
    # An HPC site's nodes are fast and its queue is feared.
    "tacc": SiteEstimate(rate="10 MB/s", queue_wait="60 s"),
    "local": SiteEstimate(rate="5 MB/s", queue_wait="3 s"),
}
# TACC and iPlant share a network, as do the campus and the submit host; a wide-area path joins
# the two.
_NEAR, _FAR = "1 Gb/s", "200 Mb/s"
_NEIGHBOURS = frozenset({frozenset({"tacc", "iplant"}), frozenset({"mu", "local"})})
# Light closing steps can also run where the results are published from.
_ALSO_AT_DATA_STORE = frozenset(
    {
        "combine_variants",
        "select_variants_snp",
        "filtering_snp",
        "select_variants_indel",
        "filtering_indel",
    }
)


def bandwidth(site: str, other: str) -> str:
    """Between two sites."""
    return _NEAR if frozenset({site, other}) in _NEIGHBOURS else _FAR


def sites_of(program: str) -> tuple[str, ...]:
    """The sites where a program is installed."""
    return (*EXECUTION, DATA_STORE) if program in _ALSO_AT_DATA_STORE else EXECUTION
