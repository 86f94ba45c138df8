"""``adon site replicas``: what lies at sources of data, as a replica catalog of Pegasus."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adon.cli.options import note
from adon.cli.parsing import Nouns, add_command
from network_provisioner.base.errors import InputError, MissingError

if TYPE_CHECKING:
    from site_selector.replicas.catalog import Reader
    from site_selector.replicas.order import Paths

_REPLICAS = """Write a replica catalog of what lies at sources of data, with sizes and checksums.

A source is an iRODS collection, a WebDAV collection (its URL ends in /), the URL of one file, or a
directory of this machine. A file's logical name is its path below the source; equal files of one
name are replicas of each other.
"""
_MORE = """
Examples:
  adon site replicas irods://data.cyverse.org/iplant/home/shared/soykb --site iplant
  adon site replicas https://dav.example.org/soykb/ /data/soykb --sites sites.yml --rank-for mu
  adon site replicas reads --checksum --output replicas.yml

Exit codes: 0 done; 1 a source could not be read, and the others are written; 2 nothing is written.
"""


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon site replicas``."""
    parser = add_command(verbs, "replicas", _REPLICAS, _run, _MORE)
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE",
        help="irods://…, https://…, http://…, file://… or a path",
    )  # fmt: skip
    parser.add_argument(
        "--site", metavar="NAME",
        help="where all of it lies (default: as the file servers of --sites and the hosts of "
        "--config say; local for directories)",
    )  # fmt: skip
    parser.add_argument("--sites", type=Path, metavar="FILE", help="site catalog")
    parser.add_argument(
        "--rank-for", metavar="SITE",
        help="of several replicas, write first what arrives there soonest; needs --sites",
    )  # fmt: skip
    parser.add_argument(
        "--checksum", action="store_true", help="read all files of directories for their sha256"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write here (default: standard output)"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="adon.yml: its network, archive and broker"
    )


def _run(args: argparse.Namespace) -> int:
    from site_selector.replicas.catalog import merged, place_of, write
    from site_selector.replicas.order import soonest_first
    from site_selector.wholefile import write_whole

    if args.output and args.output.exists() and not args.force:
        raise InputError(f"{args.output}: found a file, expected a free name or --force")
    prefixes = _prefixes(args)
    paths = _paths(args) if args.rank_for else {}
    found = []
    unread = 0
    for source in args.sources:
        try:
            files = _reader(source, args.checksum)(source, note)
            found += [(file, place_of(file, args.site, prefixes)) for file in files]
        except (InputError, MissingError) as error:
            note(str(error))
            unread += 1
    entries = merged(found)
    if not entries:
        raise InputError("found no file, expected one at least")
    if args.rank_for:
        for entry in entries.values():
            entry.places = soonest_first(entry.places, args.rank_for, entry.size_bytes or 0, paths)
    if args.output:
        write_whole(args.output, partial(write, entries), "the replica catalog")
    else:
        write(entries, sys.stdout)
    return 1 if unread else 0


def _reader(source: str, checksum: bool) -> Reader:
    try:
        scheme = urlsplit(source).scheme
    except ValueError as error:
        raise InputError(f"{source}: {error}, expected a URL or a path") from None
    if scheme in ("", "file"):
        from site_selector.replicas.directory import read_directory

        return partial(read_directory, checksum=checksum)
    if scheme in ("http", "https"):
        from site_selector.replicas.web import read_url

        return read_url
    if scheme == "irods":
        if importlib.util.find_spec("irods") is None:
            raise MissingError(f"{source}: found no python-irodsclient, expected adon-wms[irods]")
        from site_selector.replicas.zone import read_zone

        return partial(read_zone, session=_session)
    raise InputError(f"{source}: found {scheme}, expected irods, https, http, file or a path")


def _session(url: str) -> Any:
    from condor_plugins.irods import account

    return account.session(account.parsed(url), os.environ, Path.cwd())


def _prefixes(args: argparse.Namespace) -> dict[str, str]:
    """Sites by what the URLs of their files begin with, and by hosts; paths are this machine's."""
    from adon.config.adon_yml import load_config
    from network_provisioner.topology.data import topology_from_dict
    from site_selector.catalogs.documents import read_document
    from site_selector.catalogs.entries import sites_of
    from site_selector.inputs import SUBMIT_SITE

    found = {"/": SUBMIT_SITE}
    if args.config:
        for node in topology_from_dict(load_config(args.config).topology).nodes.values():
            hosts = [node.dtn, node.address, *(h.name or h.address for h in node.others)]
            found |= {host: node.name for host in hosts if host}
    if args.sites:
        for site in sites_of(read_document(args.sites, "Pegasus 5 site catalog")).values():
            servers = [s for directory in site.directories for s in directory.servers]
            found |= {server.url: site.name for server in servers}
    return found


def _paths(args: argparse.Namespace) -> Paths:
    """What is believed of the paths between the sites of the catalog."""
    from adon.planning.placement import PlacementInputs, believe_files
    from site_selector.inputs import known_site

    files = PlacementInputs(None, args.sites, config=args.config)
    world = believe_files(files, note)
    known_site(args.rank_for, world.sites, "--rank-for")
    return world.paths
