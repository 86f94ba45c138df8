"""What URLs say of where they lead, and which site that is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

OSDF = "osg-htc.org"
"""The federation of ``osdf:`` and ``stash:``, as ``pelican://`` names it."""
_SAME = {
    "stash": "osdf", "stashcp": "osdf", "dav": "http", "davs": "https", "webdav": "http",
    "webdavs": "https", "xroot": "root", "xrootd": "root", "xroots": "roots", "s3s": "s3",
    "sftp": "scp", "ssh": "scp", "symlink": "file", "moveto": "file",
}  # fmt: skip
_SCHEME = re.compile(r"(?:[\w.-]+\+)*([A-Za-z][A-Za-z0-9.-]*):(?=/)")
_PORTS = {
    "http": 80, "https": 443, "pelican": 443, "ftp": 21, "gsiftp": 2811, "irods": 1247,
    "root": 1094, "roots": 1094, "scp": 22,
}  # fmt: skip

# The pairs of schemes that one tool of pegasus-transfer moves from server to server (its handlers'
# protocol maps, Pegasus 6.0); every other pair without a local end takes two steps.
_S3 = ("s3", "s3s")
_DIRECT = frozenset(
    {
        ("gsiftp", "gsiftp"), ("ftp", "ftp"), ("ftp", "gsiftp"), ("gsiftp", "ftp"),
        ("sshftp", "sshftp"), ("go", "go"), ("gs", "gs"), *((a, b) for a in _S3 for b in _S3),
    }
)  # fmt: skip
LOCAL_SCHEMES = frozenset({"file", "symlink", "moveto"})
"""Of files on the machine that ``pegasus-transfer`` runs on."""


def scheme_of(url: str) -> str:
    """How it is fetched, such as ``https``, whatever credential it names."""
    return plain(url).partition(":")[0].lower()


def moves_directly(source: str, destination: str, summed: bool = False) -> bool:
    """Whether ``pegasus-transfer`` moves a file between two schemes in one step, without fetching
    it to where it runs and sending it on. ``summed``: it is asked for a checksum, for which it
    fetches what two GridFTP servers would move."""
    ends = source, destination
    if summed and ends == ("gsiftp", "gsiftp"):
        return False
    return not LOCAL_SCHEMES.isdisjoint(ends) or ends in _DIRECT


def plain(url: str) -> str:
    """A URL without the name of the credential that HTCondor takes for it: ``name+https://…``. What
    has no scheme stays as it is."""
    match = _SCHEME.match(url)
    return url if match is None else f"{match[1].lower()}:{url[match.end() :]}"


def host_of(url: str) -> str:
    """Its server, empty where it names none."""
    try:
        host = (urlsplit(url).hostname or "").removesuffix(".")
        return ip_address(host).compressed if ":" in host else host
    except ValueError:
        return ""


def site_of_url(url: str, sources: Mapping[str, str]) -> str:
    """The site of the longest prefix of a URL or path that ``sources`` has, else that of its
    server's name; empty where neither is there. URLs that name one place are equal however they
    are spelt, a prefix ends where a name in the URL does, and a user's name does not count."""
    url_names, host = _names(url), host_of(plain(url))
    lengths = {
        len(names): site
        for prefix, site in sources.items()
        if "/" in prefix and url_names[: len(names := _names(prefix))] == names
    }
    if lengths:
        return lengths[max(lengths)]
    return next((site for key, site in sources.items() if host and key.lower() == host), "")


@lru_cache(maxsize=4096)
def _names(url: str) -> tuple[str, ...]:
    """Scheme, server and the names of the path, each in the one form that all its spellings have.
    Query and fragment are left out."""
    if url.startswith("//"):
        url = f"/{url.lstrip('/')}"
    try:
        parts = urlsplit(plain(url).replace("#", "%23"))
        scheme, host, port = parts.scheme or "file", host_of(plain(url)), parts.port
    except ValueError:
        return (url,)
    path = parts.path
    if not (path or host):
        return (scheme,)
    scheme = _SAME.get(scheme, scheme)
    if host == OSDF and scheme in ("osdf", "pelican"):
        scheme, host = "osdf", ""
    elif scheme == "osdf":  # it names no server: what stands there is of the path
        host, path = "", f"{parts.netloc}/{path}"
    elif scheme == "file" and host == "localhost":
        host = ""
    elif port is not None and port != _PORTS.get(scheme):
        host = f"{host}:{port}"
    names: list[str] = []
    for name in map(unquote, path.split("/")):
        if name == "..":
            names[-1:] = []
        elif name not in ("", "."):
            names.append(name)
    return (scheme, host, *names)
