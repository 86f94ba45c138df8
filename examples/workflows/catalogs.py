"""The three Pegasus catalogs of an example, with what its administrator believes about each site.

The estimates are first guesses, given to site selection as ``pegasus: adon.*`` profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

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

from examples.workflows.places import Place

VERSION = "1.0"
# What any of the programs needs at most of a worker. Its files lie in the site's shared scratch;
# a worker's own disk, of which HTCondor counts an equal part of what is free, takes only logs.
MEMORY, DISK = "512 MB", "10 MB"


@dataclass(frozen=True)
class SiteEstimate:
    """What an administrator expects of a site before anything was measured, in his own units.

    ``rate`` is Γ_c, what one worker computes; ``queue_wait`` is T_q.
    """

    rate: str
    queue_wait: str


def site_catalog(
    places: Mapping[str, Place],
    estimates: Mapping[str, SiteEstimate],
    bandwidth: Callable[[str, str], str],
) -> SiteCatalog:
    """Directories, file servers, matching rule and hints of every site; ``bandwidth`` is assumed
    to be between two sites."""
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
        estimate = estimates[place.name]
        hints: dict[str, str | int] = {
            "adon.workers": place.workers,
            "adon.rate": estimate.rate,
            "adon.queue_wait": estimate.queue_wait,
            **{
                f"adon.bandwidth.{other}": bandwidth(place.name, other)
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
    store: Place,
    folder: str,
    sizes: Mapping[str, int],
    checksums: Mapping[str, str],
    urls: Mapping[str, str] = MappingProxyType({}),
) -> ReplicaCatalog:
    """Each input file, in ``folder`` of the data store or at its own one of ``urls``, with its size
    in bytes and its SHA-256.

    A file whose checksum the catalog does not know Pegasus has fetched to the submit host, to
    compute one, and sent on from there.
    """
    catalog = ReplicaCatalog()
    for name, size in sizes.items():
        url = urls.get(name) or store.file_url(str(PurePosixPath(folder) / name))
        known = {"sha256": checksums[name]} if name in checksums else None
        catalog.add_replica(store.name, name, url, checksum=known, metadata={"size": size})
    return catalog


def transformation_catalog(
    namespace: str,
    runtimes_s: Mapping[str, float],
    installed: Callable[[str], Mapping[str, str]],
) -> TransformationCatalog:
    """Each program with a first guess of its run time in seconds; ``installed`` gives its path at
    each site that has it."""
    catalog = TransformationCatalog()
    for name, runtime_s in runtimes_s.items():
        transformation = Transformation(name, namespace=namespace, version=VERSION)
        for site, path in installed(name).items():
            transformation.add_sites(
                TransformationSite(site, path, arch=Arch.X86_64, os_type=OS.LINUX)
            )
        # What Pegasus would ask HTCondor for otherwise is 2 GB of memory and 5 GB of disk.
        transformation.add_pegasus_profile(
            runtime=max(1, round(runtime_s)), memory=MEMORY, diskspace=DISK
        )
        catalog.add_transformations(transformation)
    return catalog
