"""Where the example runs: example hosts, or the sites of a running test bed.

The four sites are SoyKB's (thesis, Figures 7 and 8): the data store at iPlant, the campus at MU,
the remote HPC site TACC, and the submit host.
"""

from __future__ import annotations

from pathlib import Path

from examples.workflows import places
from examples.workflows.places import Place

DATA_STORE = "iplant"
EXECUTION = ("mu", "tacc")
SITES = (DATA_STORE, *EXECUTION, "local")
TOOLS = Path(__file__).resolve().parents[1] / "tools"
_HOSTS = {
    "iplant": ("data.iplant.example.org", 2),
    "mu": ("dtn.mu.example.edu", 8),
    "tacc": ("gridftp.tacc.example.edu", 32),
    "local": ("submit.soykb.example.org", 1),
}


def example_places() -> dict[str, Place]:
    """Hosts that exist nowhere: enough to read, select sites and plan."""
    return places.example_places("soykb", _HOSTS)


def here_places(out: Path) -> dict[str, Place]:
    """Sites that are folders below ``out``, for a pool on this machine."""
    return places.here_places(out, {name: workers for name, (_, workers) in _HOSTS.items()}, TOOLS)


def testbed_places(path: Path) -> dict[str, Place]:
    """The sites that a running test bed describes in its ``testbed.json``.

    Raises ExampleError for an invalid file.
    """
    return places.testbed_places(path, SITES, TOOLS)
