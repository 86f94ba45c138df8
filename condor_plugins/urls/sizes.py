"""What is known about URLs before they are fetched: how large it is, and which cache has it.

The plan of a workflow tells first, then the servers, all of them together within a second. A server
that no site's administrator names is asked at public addresses alone: a URL, or where a server
sends us on to, is not to reach what only this machine may.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from pwd import getpwuid
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from condor_plugins.jobs.jobad import JobAd, text
from condor_plugins.urls.sources import CACHED, hosts_of
from monitors.workflows.planned.job_files import input_sizes
from network_provisioner.base.units import whole_bytes
from network_provisioner.base.urls import host_of, plain, scheme_of, site_of_url
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.http1 import Tls, head, trusting

MOST_S = 1.0  # for all URLs of a job
_AT_ONCE = 8
_MOST_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_NAT64 = IPv6Network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}
_trusted = cache(trusting)


@dataclass(slots=True)
class UrlFacts:
    """Bytes by URL, and by URL the one at the cache that it is ``served`` from."""

    sizes: dict[str, int] = field(default_factory=dict)
    cache_urls: dict[str, str] = field(default_factory=dict)


def facts(ad: JobAd, urls: Collection[str], config: HookConfig, most_s: float = MOST_S) -> UrlFacts:
    """What can be known of these in ``most_s`` seconds. Never raises for what servers do."""
    planned = _planned(ad)
    names = {url: url.partition("?")[0].rpartition("/")[2] for url in urls}
    known = UrlFacts({url: planned[name] for url, name in names.items() if name in planned})
    until, named = time.monotonic() + most_s, hosts_of(config)
    queue = deque(
        url
        for url in urls
        if (scheme_of(url) in CACHED and config.redirector)
        or (url not in known.sizes and site_of_url(url, config.sources))
    )

    def work() -> None:
        with suppress(IndexError):
            while True:
                with suppress(OSError, ValueError):
                    _look(queue.popleft(), config.redirector, named, until, known)

    # Nothing ends a look-up of a name that takes too long, but the program's end.
    threads = [Thread(target=work, daemon=True) for _ in range(min(_AT_ONCE, len(queue)))]
    irods = [url for url in queue if scheme_of(url) == "irods" and host_of(url) in named]
    if irods:
        zone = partial(_ask_irods, irods, text(ad, "Iwd"), until, known)
        threads.append(Thread(target=zone, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return UrlFacts(dict(known.sizes), dict(known.cache_urls))


def _planned(ad: JobAd) -> dict[str, int]:
    """What Pegasus's planner knew of a job's input, by lfn, the name that it has at the slot."""
    node, script = text(ad, "DAGNodeName"), text(ad, "Cmd")
    if not node or "pegasus_wf_uuid" not in ad:
        return {}
    return input_sizes(Path(os.path.join(text(ad, "Iwd"), script)).with_name(f"{node}.in.meta"))  # noqa: PTH118


def _look(
    url: str, redirector: str | None, named: Collection[str], until: float, known: UrlFacts
) -> None:
    """Ask for one. Raises OSError, ValueError."""
    cached, at = scheme_of(url) in CACHED, plain(url)
    if cached:
        at = (redirector or "").rstrip("/") + _object(at)
    for _ in range(_MOST_HOPS):
        parts = urlsplit(at)
        if parts.scheme not in _PORTS:
            return
        context = _trusted(Tls()) if parts.scheme == "https" else None
        answer = head(parts, place(parts, named), until, context)
        if answer.status in _REDIRECTS and "location" in answer.headers:
            at = urljoin(at, answer.headers["location"])
            if cached:
                known.cache_urls.setdefault(url, at)
            continue
        length = whole_bytes(answer.headers.get("content-length", ""))
        if answer.status == 200 and length is not None:
            known.sizes.setdefault(url, length)
        return


def _ask_irods(urls: Sequence[str], folder: str, until: float, known: UrlFacts) -> None:
    """Its client is not the standard library's, and takes long to load: another process asks."""
    command = [sys.executable, "-I", "-m", "condor_plugins.irods.sizes", folder, *urls]
    env = {**os.environ, "HOME": getpwuid(os.getuid()).pw_dir}
    with Popen(command, stdout=PIPE, stderr=DEVNULL, env=env, cwd="/") as process:
        try:
            output, _ = process.communicate(timeout=until - time.monotonic())
        except TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    known.sizes.update(json.loads(line) for line in output.splitlines() if line.endswith(b"]"))


def _object(url: str) -> str:
    """Its name in the federation. OSDF's URLs name no server: what is there is the first part
    of the name."""
    parts = urlsplit(url)
    return (
        parts.path
        if parts.scheme == "pelican" or not parts.netloc
        else f"/{parts.netloc}{parts.path}"
    )


def place(
    url: SplitResult,
    named: Collection[str],
    look_up: Callable[..., list[tuple[Any, ...]]] = socket.getaddrinfo,
) -> tuple[Any, ...]:
    """Where a server must be asked, as ``socket.getaddrinfo`` tells. Raises OSError for one that
    is not ``named`` and has an address that is not public, ValueError for no name."""
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    places = look_up(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    for *_, address in places:
        if host not in named and not _is_public(address[0]):
            raise OSError(f"{host}: found address {address[0]}, expected a public one")
    return places[0]


def _is_public(address: str) -> bool:
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        inner = IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None
        ip = inner or ip.ipv4_mapped or ip.sixtofour or ip
    return ip.is_global and not ip.is_multicast
