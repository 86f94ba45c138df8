"""Where a run's files are, and which file goes where by which transfer job.

    raw input, elsewhere       stage_in_local_<site>_<level>_<n>     driven from the submit host
    raw input, at the site     stage_in_remote_<site>_<level>_<n>    a symbolic link, made there
    output of another site     stage_inter_local_<job>_0             one per reading job
    wanted result              stage_out_local_<site>_<level>_<n>    to the output site
    … made where it stays      stage_out_remote_<site>_<level>_<n>   a copy, made there

A file goes to a site once: later readers wait for the job that brings it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from urllib.parse import urlsplit

from monitors.workflows.planned.transferlist import SiteUrl, Transfer
from network_provisioner.base.errors import InputError
from pegasus_hooks.planner.model import ExecutableJob, PlannedKind
from site_selector.catalogs.entries import SCRATCH, SUBMIT_SITE, Directory, Site, pfn_scheme
from site_selector.problem import JOBS_PER_STAGE_JOB

STORAGE = ("sharedStorage", "localStorage")
_SERVES = {"get": ("get", "all"), "put": ("put", "all")}
_TOP_PRIORITY, _PRIORITY_STEP = 100, 10


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Paths and URLs of one run. ``run`` is the run's folder below every site's scratch."""

    sites: Mapping[str, Site]
    run: str

    def run_dir(self, site: str) -> str:
        """Absolute path of the run's directory at ``site``. Raises InputError."""
        return f"{self._directory(site, (SCRATCH,)).path.rstrip('/')}/{self.run}"

    def scratch_url(self, site: str, lfn: str, operation: str) -> str:
        """URL of a file in the run's directory, to ``get`` or to ``put``. Raises InputError."""
        base = _server(site, self._directory(site, (SCRATCH,)), operation)
        return f"{base}/{self.run}/{lfn}"

    def storage_url(self, site: str, lfn: str) -> str:
        """URL to put a result of the workflow at. Raises InputError."""
        return f"{_server(site, self._directory(site, STORAGE), 'put')}/{lfn}"

    def storage_path(self, site: str, lfn: str) -> str:
        """Path of a result at ``site``. Raises InputError."""
        return f"{self._directory(site, STORAGE).path.rstrip('/')}/{lfn}"

    def path_at(self, site: str, pfn: str) -> str | None:
        """The path of ``pfn`` for jobs at ``site``: itself, or by the file server that serves it.

        None if the URL belongs to no directory of that site.
        """
        if (path := _path(pfn)) is not None:
            return path
        known = self.sites.get(site)
        for directory in known.directories if known else ():
            for server in directory.servers:
                rest = pfn.removeprefix(server.url.rstrip("/"))
                if rest != pfn and rest.startswith("/"):
                    return directory.path.rstrip("/") + rest
        return None

    def url_of(self, site: str, pfn: str, lfn: str) -> str:
        """A URL under which the submit host reaches ``pfn`` at ``site``. Raises InputError."""
        path = _path(pfn)
        if path is None:
            return pfn
        if site == SUBMIT_SITE:
            return f"file://{path}"
        known = self.sites.get(site)
        for directory in known.directories if known else ():
            rest = path.removeprefix(directory.path.rstrip("/"))
            if rest != path and rest.startswith("/") and directory.servers:
                return _server(site, directory, "get") + rest
        raise InputError(
            f"replica {lfn!r}: found the path {path} at site {site!r}, expected a URL, or a path "
            "below a directory of the site catalog that has a file server"
        )

    def _directory(self, site: str, kinds: tuple[str, ...]) -> Directory:
        known = self.sites.get(site)
        if known is None:
            raise InputError(f"site {site!r}: not in the site catalog ({', '.join(self.sites)})")
        for kind in kinds:
            for directory in known.directories:
                if directory.kind == kind and directory.path:
                    return directory
        raise InputError(
            f"site {site!r}: found no directory of type {' or '.join(kinds)}, expected one in the "
            "site catalog (with pegasus-plan on PATH, condorio needs none where jobs run)"
        )


def _path(pfn: str) -> str | None:
    """The path that a physical file name is, or that is in its ``file`` URL; None for others."""
    if pfn_scheme(pfn) != "file":
        return None
    return urlsplit(pfn).path if pfn.startswith("file:") else pfn


def _server(site: str, directory: Directory, operation: str) -> str:
    for server in directory.servers:
        if server.operation in _SERVES[operation]:
            return server.url.rstrip("/")
    raise InputError(
        f"site {site!r}: directory {directory.path} has no file server to {operation} files with"
    )


@dataclass(frozen=True, slots=True)
class RawFile:
    """An input of the workflow: its replicas (site, pfn), best first, and size in bytes."""

    lfn: str
    replicas: tuple[tuple[str, str], ...]
    size_bytes: int | None


@dataclass(slots=True)
class TransferJobs:
    """Collects transfer jobs while the layout walks the workflow."""

    places: RunPaths
    output_site: str
    stage_in_clusters: int | None
    stage_out_clusters: int | None
    width: Mapping[int, int]  # jobs by level
    jobs: dict[str, ExecutableJob] = field(default_factory=dict)
    # (site, lfn) to the job that brings the file there
    brought: dict[tuple[str, str], str] = field(default_factory=dict)
    _turns: dict[tuple[str, str, str, int], int] = field(default_factory=dict)

    def stage_in(self, raw: list[RawFile], site: str, level: int) -> set[str]:
        """The jobs that one reader of ``raw`` at ``site`` waits for; made where there are none."""
        needed = {self.brought[site, f.lfn] for f in raw if (site, f.lfn) in self.brought}
        turns: dict[str, int] = {}
        for file in raw:
            if (site, file.lfn) in self.brought:
                continue
            transfer, runs_at = self._raw_transfer(file, site)
            side = "local" if runs_at == SUBMIT_SITE else "remote"
            if side not in turns:  # all files of one reader go into the same bundle
                turns[side] = self._turn(("in", side, site, level), self.stage_in_clusters)
            name = f"stage_in_{side}_{site}_{level}_{turns[side]}"
            job = self._job(name, PlannedKind.STAGE_IN, runs_at, level)
            job.entries.append(transfer)
            job.touches.add(site)
            self.brought[site, file.lfn] = name
            needed.add(name)
        return needed

    def stage_inter(
        self, reader: str, site: str, level: int, lfns: Mapping[str, tuple[str, str, int | None]]
    ) -> set[str]:
        """The jobs that ``reader`` at ``site`` waits for. ``lfns``: the file's site, the job that
        writes it, and its declared size."""
        needed = set()
        for lfn, (source, producer, size_bytes) in lfns.items():
            name = self.brought.get((site, lfn))
            if name is None:
                name = f"stage_inter_local_{reader}_0"
                job = self._job(name, PlannedKind.STAGE_INTER, SUBMIT_SITE, level)
                job.entries.append(
                    Transfer(
                        lfn,
                        (SiteUrl(source, self.places.scratch_url(source, lfn, "get")),),
                        (SiteUrl(site, self.places.scratch_url(site, lfn, "put")),),
                        size_bytes,
                        "output",
                    )
                )
                job.parents.add(producer)
                job.touches |= {source, site}
                self.brought[site, lfn] = name
            needed.add(name)
        return needed

    def stage_out(
        self, producer: str, site: str, level: int, lfns: Mapping[str, int | None]
    ) -> None:
        """Results of ``producer`` at ``site``, with their declared sizes, to the output site."""
        if not lfns:
            return
        at_home = site == self.output_site
        runs_at = site if at_home else SUBMIT_SITE
        side = "local" if runs_at == SUBMIT_SITE else "remote"
        cluster = self._turn(("out", side, site, level), self.stage_out_clusters)
        job = self._job(
            f"stage_out_{side}_{site}_{level}_{cluster}", PlannedKind.STAGE_OUT, runs_at, level
        )
        job.parents.add(producer)
        job.touches.add(site)
        for lfn, size_bytes in lfns.items():
            if at_home:
                source = f"file://{self.places.run_dir(site)}/{lfn}"
                target = f"file://{self.places.storage_path(site, lfn)}"
            else:
                source = self.places.scratch_url(site, lfn, "get")
                target = self.places.storage_url(self.output_site, lfn)
            job.entries.append(
                Transfer(
                    lfn,
                    (SiteUrl(site, source),),
                    (SiteUrl(self.output_site, target),),
                    size_bytes,
                    "output",
                )
            )

    def stage_out_reused(self, files: Iterable[RawFile]) -> None:
        """Results that need no job to the output site, from where they lie."""
        for file in files:
            job = self._job("stage_out_local_local_1000_0", PlannedKind.STAGE_OUT, SUBMIT_SITE, 0)
            target = SiteUrl(self.output_site, self.places.storage_url(self.output_site, file.lfn))
            job.entries.append(
                Transfer(file.lfn, self._sources(file), (target,), file.size_bytes, "output")
            )

    def _raw_transfer(self, file: RawFile, site: str) -> tuple[Transfer, str]:
        """How a raw file gets to ``site``, and the site whose machine does it."""
        for at, pfn in file.replicas:
            path = self.places.path_at(site, pfn) if at == site else None
            if path is not None:
                link = f"symlink://{self.places.run_dir(site)}/{file.lfn}"
                source = SiteUrl(site, f"file://{path}", _TOP_PRIORITY)
                return Transfer(file.lfn, (source,), (SiteUrl(site, link),), file.size_bytes), site
        target = SiteUrl(site, self.places.scratch_url(site, file.lfn, "put"))
        return Transfer(file.lfn, self._sources(file), (target,), file.size_bytes), SUBMIT_SITE

    def _sources(self, file: RawFile) -> tuple[SiteUrl, ...]:
        return tuple(
            SiteUrl(
                at,
                self.places.url_of(at, pfn, file.lfn),
                max(1, _TOP_PRIORITY - n * _PRIORITY_STEP),
            )
            for n, (at, pfn) in enumerate(file.replicas)
        )

    def _turn(self, place: tuple[str, str, str, int], clusters: int | None) -> int:
        """Which bundle is next, round robin, for one direction, side, site and level."""
        cluster = self._turns.get(place, 0)
        self._turns[place] = cluster + 1
        return cluster % (clusters or ceil(self.width[place[3]] / JOBS_PER_STAGE_JOB))

    def _job(self, name: str, kind: PlannedKind, site: str, level: int) -> ExecutableJob:
        return self.jobs.setdefault(name, ExecutableJob(name, kind, site, level))
