"""What a job moves between sites, in whichever of its files Pegasus wrote it down.

A transfer job (``pegasus::transfer``) has its list in ``<dir>/<job>.in``. In the configurations
``nonsharedfs`` and, for inputs that bypass the staging site, ``condorio``, a compute job brings and
takes its files itself: its PegasusLite script ``<dir>/<job>.sh`` carries the same kind of list

    pegasus-transfer --threads 1  1>&2 << 'eof'
    [ … ]
    eof

once for its inputs and once for its outputs (``linkage``). An input that bypasses the staging site
stands there with the label of the site where the job runs; where it really lies stands in the
workflow's ``<wf>-0.cache`` (seen with Pegasus 6.0). ``<job>.in`` of a clustered job is no transfer
list, but what pegasus-cluster runs.

Where bytes are relayed they pass the site that the job runs at, ``+pegasus_site`` of its submit
file. Standard library only: the hooks import this.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from monitors.workflows.planned import job_files, transferlist
from monitors.workflows.planned.foreign_files import read_text
from monitors.workflows.planned.transferlist import RELAY, Entry, SitePair, SiteUrl, Transfer

_LITE_LIST = re.compile(r"^[^\n]*pegasus-transfer\b[^\n]*<< *'?(\w+)'?\n(.*?)\n\1$", re.M | re.S)
_CACHED = re.compile(r'^\S+ (\S+) .*?site="([^"]*)"', re.MULTILINE)
_OUTPUT = "output"

SiteOf = Callable[[str, str], str]
"""The site that a file is at, by its label in a list and its URL."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What a job moves.

    ``now``    pairs whose files move as soon as the job runs
    ``later``  pairs of a PegasusLite job whose files move when its program has ended
    ``site``   where the job runs
    ``lite``   whether a PegasusLite script moves them, and no transfer job
    """

    now: list[SitePair]
    later: list[SitePair]
    site: str = RELAY
    lite: bool = False
    site_of: SiteOf = lambda label, _url: label

    @property
    def pairs(self) -> list[SitePair]:
        """All of them."""
        return [*self.now, *self.later]


def moves_of(
    listing: Path, job: str, transformation: str, site: str, cache_file: Path
) -> Moves | None:
    """What ``job`` moves; None where it is no job that moves anything.

    ``listing`` is ``<dir>/<job>.in``, there or not; ``transformation`` and ``site`` stand in its
    submit file, "" where they do not; ``cache_file`` is the workflow's ``.cache``. Raises
    InputError for a list that cannot be read.
    """
    site = site or RELAY
    # Without a submit file to ask: by Pegasus's names, stage_in_*, stage_inter_*, stage_out_*.
    if transformation == job_files.TRANSFER or (not transformation and "stage_" in job):
        if not listing.exists():
            return None
        pairs = transferlist.site_pairs(transferlist.read(listing), site)
        return Moves(pairs, [], site)
    script = listing.with_suffix(".sh")
    try:
        text = read_text(script, "replace")
    except OSError:
        return None
    entries = [
        entry
        for match in _LITE_LIST.finditer(text)
        for entry in transferlist.parse(match[2], str(script))
    ]
    if not entries:
        return None
    site_of = _cached_sites(cache_file, site)
    placed = [_placed(entry, site_of) for entry in entries]
    outputs = [entry for entry in placed if _is_output(entry)]
    inputs = [entry for entry in placed if not _is_output(entry)]
    now = transferlist.site_pairs(inputs, site)
    later = []
    at_once = {(pair.src, pair.dst): pair for pair in now}
    for pair in transferlist.site_pairs(outputs, site):
        if (pair.src, pair.dst) in at_once:  # one request for both, since one id is for both
            at_once[pair.src, pair.dst].transfers.extend(pair.transfers)
        else:
            later.append(pair)
    return Moves(now, later, site, True, site_of)


def _is_output(entry: Entry) -> bool:
    return isinstance(entry, Transfer) and entry.linkage == _OUTPUT


def _placed(entry: Entry, site_of: SiteOf) -> Entry:
    if not isinstance(entry, Transfer):
        return entry

    def place(urls: tuple[SiteUrl, ...]) -> tuple[SiteUrl, ...]:
        return tuple(replace(u, site=site_of(u.site, u.url)) for u in urls)

    return replace(entry, sources=place(entry.sources), destinations=place(entry.destinations))


def _cached_sites(file: Path, here: str) -> SiteOf:
    """By the workflow's cache where the label is that of the job's own site, but the URL is none of
    a file on its machine."""

    @cache
    def sites() -> dict[str, str]:
        try:
            text = read_text(file, "replace")
        except OSError:
            return {}
        return dict(reversed(_CACHED.findall(text)))  # of a URL that comes twice, the first

    def site_of(label: str, url: str) -> str:
        is_cached = label == here and not transferlist.is_local(url)
        return sites().get(url, label) if is_cached else label

    return site_of
