"""Where a run's files are: site catalog directories as URLs for transfers and paths for jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from network_provisioner.base.errors import InputError
from site_selector.catalogs.entries import Directory, Site

SCRATCH = ("sharedScratch",)
STORAGE = ("sharedStorage", "localStorage")
SUBMIT_SITE = "local"
_SERVES = {"get": ("get", "all"), "put": ("put", "all")}


@dataclass(frozen=True, slots=True)
class Places:
    """Paths and URLs of one run. ``run`` is the run's folder below every site's scratch."""

    sites: Mapping[str, Site]
    run: str

    def run_dir(self, site: str) -> str:
        """Absolute path of the run's directory at ``site``. Raises InputError."""
        return f"{self._directory(site, SCRATCH).path.rstrip('/')}/{self.run}"

    def scratch_url(self, site: str, lfn: str, operation: str) -> str:
        """URL of a file in the run's directory, to ``get`` or to ``put``. Raises InputError."""
        base = _server(site, self._directory(site, SCRATCH), operation)
        return f"{base}/{self.run}/{lfn}"

    def storage_url(self, site: str, lfn: str) -> str:
        """URL to put a result of the workflow at. Raises InputError."""
        return f"{_server(site, self._directory(site, STORAGE), 'put')}/{lfn}"

    def storage_path(self, site: str, lfn: str) -> str:
        """Path of a result at ``site``. Raises InputError."""
        return f"{self._directory(site, STORAGE).path.rstrip('/')}/{lfn}"

    def path_at(self, site: str, pfn: str) -> str | None:
        """The path of ``pfn`` for jobs at ``site``: itself, or by the file server that serves it.

        None where the URL belongs to no directory of that site.
        """
        scheme = urlsplit(pfn).scheme
        if scheme in ("", "file"):
            return urlsplit(pfn).path if scheme else pfn
        known = self.sites.get(site)
        for directory in known.directories if known else ():
            for server in directory.servers:
                rest = pfn.removeprefix(server.url.rstrip("/"))
                if rest != pfn and rest.startswith("/"):
                    return directory.path.rstrip("/") + rest
        return None

    def url_of(self, site: str, pfn: str, lfn: str) -> str:
        """A URL under which the submit host reaches ``pfn`` at ``site``. Raises InputError."""
        scheme = urlsplit(pfn).scheme
        if scheme not in ("", "file"):
            return pfn
        path = urlsplit(pfn).path if scheme else pfn
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
                if directory.kind == kind:
                    return directory
        raise InputError(f"site {site!r}: found no directory of type {' or '.join(kinds)}")


def _server(site: str, directory: Directory, operation: str) -> str:
    for server in directory.servers:
        if server.operation in _SERVES[operation]:
            return server.url.rstrip("/")
    raise InputError(
        f"site {site!r}: directory {directory.path} has no file server to {operation} files with"
    )
