"""``adon site replicas``: what lies at sources of data, as a replica catalog of Pegasus."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.output import note
from adon.cli.parsing import config, flag, option
from network_provisioner.base.errors import InputError, MissingError

if TYPE_CHECKING:
    from site_selector.replicas.catalog import Reader, Say, SourceFile
    from site_selector.replicas.order import Paths


OPTIONS = (
    option("sources", "irods://…, https://…, file://… or a path", "SOURCE", nargs="+"),
    option("--site", "site of all files (default: by URL; local for paths)", "NAME"),
    option("--sites", "site catalog; file servers' URLs name a file's site", "FILE", Path),
    config("adon.yml, with further hosts and measurements (default: none)", None),
    option("--rank-for", "order replicas by how soon they arrive at this site", "SITE"),
    flag("--checksum", "read files in directories and compute their sha256"),
    option("-o/--output", "a new file to write (default: standard output)", "FILE", Path),
)


def replicas(args: argparse.Namespace) -> int:
    """Write a replica catalog of the files at data sources, with sizes and checksums.

    A source is an iRODS collection, a WebDAV collection (its URL ends in /), the URL of one file,
    or a directory of this machine. The logical name of a file is its path below the source. Equal
    files with the same name are replicas.

    Examples:
      adon site replicas irods://data.cyverse.org/iplant/home/shared/soykb --site iplant
      adon site replicas https://dav.example.org/soykb/ /data/soykb --sites sites.yml --rank-for mu
      adon site replicas reads --checksum --output replicas.yml

    Exit codes: 0 done; 1 a source could not be read, or the name of a file cannot be in a catalog,
    the others are written; 2 nothing written.
    """
    from site_selector.replicas.catalog import merged, place_of, unnameable, write
    from site_selector.replicas.order import soonest_first
    from site_selector.wholefile import write_whole

    if args.output and args.output.exists():
        raise InputError(f"{args.output}: found a file, expected a free name")
    prefixes = _prefixes(args)
    paths = _paths(args) if args.rank_for else {}
    files_found = []
    left_out = 0
    for source in args.sources:
        try:
            files = list(_reader(source, args.checksum)(source, note))
            problems = [problem for problem in map(unnameable, files) if problem]
            named = [file for file in files if not unnameable(file)]
            files_found += [(file, place_of(file, args.site, prefixes)) for file in named]
        except (InputError, MissingError) as error:
            problems = [str(error)]
        for problem in problems:
            note(problem)
        left_out += len(problems)
    entries = merged(files_found)
    if not entries:
        raise InputError("found no file, expected one at least")
    if args.rank_for:
        for entry in entries.values():
            entry.places = soonest_first(entry.places, args.rank_for, entry.size_bytes or 0, paths)
    if args.output:
        write_whole(args.output, partial(write, entries), "the replica catalog")
    else:
        write(entries, sys.stdout)
    return 1 if left_out else 0


def _reader(source: str, checksum: bool) -> Reader:
    from site_selector.replicas.listings import read_directory, read_url

    scheme = source.partition("://")[0] if "://" in source else "file"
    readers: dict[str, Reader] = {
        "irods": _read_zone,
        "https": read_url,
        "http": read_url,
        "file": partial(read_directory, checksum=checksum),
    }
    if scheme not in readers:
        raise InputError(f"{source}: found {scheme}, expected {', '.join(readers)} or a path")
    return readers[scheme]


def _read_zone(source: str, say: Say) -> Iterator[SourceFile]:
    try:
        from condor_plugins.irods import account, messages
    except ImportError:
        raise MissingError(f"{source}: found no python-irodsclient, expected it here") from None
    from site_selector.replicas.listings import read_zone

    url = account.parsed(source)
    settings = account.account(url, os.environ, Path.cwd())
    session = account.open_session(settings)
    return read_zone(source, say, session, lambda error: messages.sentence(error, url, settings))


def _prefixes(args: argparse.Namespace) -> dict[str, str]:
    """Sites by what URLs begin with, and by hosts; paths are of this machine."""
    from adon.config.adon_yml import load_config
    from network_provisioner.topology.data import sources_of
    from site_selector.catalogs.documents import read_document
    from site_selector.catalogs.entries import SUBMIT_SITE, sites_of

    prefixes = {"/": SUBMIT_SITE}
    if args.config:
        prefixes |= sources_of(load_config(args.config).topology)
    if args.sites:
        sites = sites_of(read_document(args.sites, "Pegasus 5 site catalog")).values()
        directories = [(site.name, directory) for site in sites for directory in site.directories]
        prefixes |= {server.url: name for name, at in directories for server in at.servers}
    return prefixes


def _paths(args: argparse.Namespace) -> Paths:
    """What is assumed of the paths between the sites of the catalog."""
    from adon.planning.placement import PlacementInputs, estimate_files
    from site_selector.inputs import known_site

    world = estimate_files(PlacementInputs(None, args.sites, config=args.config), note)
    known_site(args.rank_for, world.sites, "--rank-for")
    return world.paths
