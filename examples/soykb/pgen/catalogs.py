"""The three Pegasus catalogs of the example, with what its administrator believes about each site.

The beliefs are first guesses, given to site selection as ``pegasus: adon.*`` profiles. They are
meant to be wrong in places: once measured, times and rates take their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from Pegasus.api import (
    OS,
    Arch,
    Directory,
    FileServer,
    Namespace,
    Operation,
    ReplicaCatalog,
    Site,
    SiteCatalog,
    Transformation,
    TransformationCatalog,
    TransformationSite,
)

from pgen.sites import DATA_STORE, EXECUTION, Place

NAMESPACE = "soykb"
VERSION = "1.0"


@dataclass(frozen=True)
class Belief:
    """What an administrator expects of a site before anything was measured, in his own units.

    ``rate`` is Γ_c, what one worker computes; ``queue_wait`` is T_q.
    """

    rate: str
    queue_wait: str


BELIEFS = {
    "iplant": Belief(rate="2 MB/s", queue_wait="5 s"),
    "mu": Belief(rate="2 MB/s", queue_wait="2 s"),
    # An HPC site's nodes are fast and its queue is feared.
    "tacc": Belief(rate="4 MB/s", queue_wait="60 s"),
    "local": Belief(rate="2 MB/s", queue_wait="0 s"),
}
# TACC and iPlant share a network, as do the campus and the submit host; a wide-area path joins
# the two.
NEAR, FAR = "1 Gb/s", "200 Mb/s"
NEIGHBOURS = frozenset({frozenset({"tacc", "iplant"}), frozenset({"mu", "local"})})
# What any of the programs needs at most of a worker. Its files lie in the site's shared scratch;
# a worker's own disk, of which HTCondor counts an equal part of what is free, takes only logs.
MEMORY, DISK = "512 MB", "10 MB"
# Light closing steps can also run where the results are published from.
ALSO_AT_DATA_STORE = frozenset(
    {
        "combine_variants",
        "select_variants_snp",
        "filtering_snp",
        "select_variants_indel",
        "filtering_indel",
    }
)


def site_catalog(places: Mapping[str, Place]) -> SiteCatalog:
    """Directories, file servers, matching rule and hints of every site."""
    catalog = SiteCatalog()
    for place in places.values():
        site = Site(place.name, arch=Arch.X86_64, os_type=OS.LINUX)
        for kind, path in (
            (Directory.SHARED_SCRATCH, place.scratch),
            (Directory.LOCAL_STORAGE, place.storage),
        ):
            site.add_directories(
                Directory(kind, path, shared_file_system=True).add_file_servers(
                    FileServer(place.file_url(path), Operation.ALL)
                )
            )
        site.add_profiles(Namespace.PEGASUS, key="style", value="condor")
        if place.url == "file://":  # the submit host reads and writes its folders
            site.add_profiles(Namespace.PEGASUS, key="auxillary.local", value="true")
        if place.name != "local":
            site.add_condor_profile(
                universe="vanilla", requirements=f'TARGET.PegasusSite == "{place.name}"'
            )
            if place.sees_submit_host:
                site.add_profiles(Namespace.CONDOR, key="should_transfer_files", value="NO")
        belief = BELIEFS[place.name]
        hints: dict[str, str | int] = {
            "adon.workers": place.workers,
            "adon.rate": belief.rate,
            "adon.queue_wait": belief.queue_wait,
            **{
                f"adon.bandwidth.{other}": NEAR
                if frozenset({place.name, other}) in NEIGHBOURS
                else FAR
                for other in places
                if other != place.name
            },
        }
        for key, value in hints.items():
            site.add_profiles(Namespace.PEGASUS, key=key, value=str(value))
        for key, value in place.env.items():
            site.add_profiles(Namespace.ENV, key=key, value=value)
        catalog.add_sites(site)
    return catalog


def replica_catalog(
    store: Place, folder: str, sizes: Mapping[str, int], checksums: Mapping[str, str]
) -> ReplicaCatalog:
    """Each input file, in ``folder`` of the data store, with its size in bytes and its SHA-256.

    A file whose checksum the catalog does not know Pegasus has fetched to the submit host, to
    compute one, and sent on from there.
    """
    catalog = ReplicaCatalog()
    for name, size in sizes.items():
        url = store.file_url(str(PurePosixPath(folder) / name))
        known = {"sha256": checksums[name]} if name in checksums else None
        catalog.add_replica(store.name, name, url, checksum=known, metadata={"size": size})
    return catalog


def transformation_catalog(
    places: Mapping[str, Place], runtimes_s: Mapping[str, float]
) -> TransformationCatalog:
    """Where each program is installed, with a first guess of its run time in seconds."""
    catalog = TransformationCatalog()
    for name, runtime_s in runtimes_s.items():
        transformation = Transformation(name, namespace=NAMESPACE, version=VERSION)
        where = (*EXECUTION, DATA_STORE) if name in ALSO_AT_DATA_STORE else EXECUTION
        for site in where:
            transformation.add_sites(
                TransformationSite(
                    site,
                    f"{places[site].tools}/{name}",
                    arch=Arch.X86_64,
                    os_type=OS.LINUX,
                )
            )
        # What Pegasus would ask HTCondor for otherwise is 2 GB of memory and 5 GB of disk.
        transformation.add_pegasus_profile(
            runtime=max(1, round(runtime_s)), memory=MEMORY, diskspace=DISK
        )
        catalog.add_transformations(transformation)
    return catalog
