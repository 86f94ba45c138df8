"""Which sites the URLs of a job's input are of, and one path for each site: pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from condor_plugins.jobs import request_builder
from condor_plugins.jobs.jobad import JobAd, Value, text
from condor_plugins.jobs.request_builder import Run, is_url, parsed
from network_provisioner.base.model import ON_SWITCHES, Service, Transit, TransitRequest
from network_provisioner.base.urls import host_of, scheme_of, site_of_url
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import RequestOutcome

CACHED = ("osdf", "pelican", "stash")
"""Schemes of what comes by way of a cache."""
_MOST_NAMED = 3  # hosts in one line


@dataclass(frozen=True, slots=True)
class UrlPath:
    """The path of what a run fetches from one ``site``: ``size_bytes`` is None if one of its
    sizes is not known, ``host`` the server or cache, "" for several, ``granted_bps`` 0 for none."""

    id: str
    site: str
    size_bytes: int | None
    host: str
    granted_bps: float = 0.0


def hosts_of(config: HookConfig) -> set[str]:
    """The servers that the sites' administrators name."""
    named = {host_of(key) if "://" in key else key.lower() for key in config.sources}
    return (named | {host_of(config.redirector or "")}) - {""}


def url_paths(
    urls: Iterable[str],
    sizes: Mapping[str, int],
    served: Mapping[str, str],
    run: Run,
    config: HookConfig,
) -> tuple[list[UrlPath], str]:
    """One path for each site, and as text which servers are of no site that is known. ``served``
    has the URL at the cache where that is known."""
    by_site: dict[str, list[str]] = {}
    for url in urls:
        at = served.get(url, url)
        site = site_of_url(at, config.sources) or site_of_url(url, config.sources)
        by_site.setdefault(site, []).append(url)
    unknown = sorted({host_of(url) or scheme_of(url) for url in by_site.pop("", [])})
    paths = []
    for site, there in sorted(by_site.items()):
        known = [sizes[url] for url in there if url in sizes]
        hosts = {host_of(served.get(url, url)) for url in there}
        paths.append(
            UrlPath(
                run.transit("in", site),
                site,
                sum(known) if len(known) == len(there) else None,
                hosts.pop() if len(hosts) == 1 else "",
            )
        )
    return paths, f"no site is known of {_some(unknown)}" if unknown else ""


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def url_request(ad: JobAd, run: Run, path: UrlPath, config: HookConfig) -> TransitRequest:
    """What is asked for."""
    request = request_builder.request(ad, run, "in", path.size_bytes, config)
    return replace(request, id=path.id, src=path.site, src_host=path.host)


def hook_attributes(
    paths: Sequence[UrlPath], answers: Sequence[RequestOutcome], services: Sequence[Service]
) -> dict[str, Value]:
    """What the hook prints of these paths, by what the broker answered, and what plug-ins may want
    to know of the fastest: streams, b/s, and the seconds of its round trip. ``services`` are empty
    where it did not answer."""
    given = []
    for path, answer in zip(paths, answers, strict=True):
        got = answer.transit
        rate_bps = got.grant.granted_bps if got and got.state in ON_SWITCHES else 0.0
        given.append(replace(path, id=answer.id, granted_bps=rate_bps))
    attributes: dict[str, Value] = {"AdonUrlPaths": written(given)}
    best = max(range(len(given)), key=lambda number: given[number].granted_bps)
    if services and services[best].threads > 0:
        attributes["AdonStreams"] = services[best].threads
    if given[best].granted_bps:
        attributes["AdonRateBps"] = given[best].granted_bps
        if rtt_s := _rtt_s(answers[best].transit):
            attributes["AdonRttSeconds"] = rtt_s
    return attributes


def _rtt_s(transit: Transit | None) -> float:
    """The round trip of its path, 0 if unknown."""
    for candidate in transit.grant.candidates if transit else ():
        if transit and candidate["path"] == transit.grant.path and "delay" in candidate["scores"]:
            return float(candidate["scores"]["delay"]["value"] or 0.0)
    return 0.0


def written(paths: Iterable[UrlPath]) -> str:
    """Paths as one attribute of a job, ``AdonUrlPaths``."""
    return json.dumps([astuple(path) for path in paths])


def paths_of(ad: JobAd) -> list[UrlPath]:
    """The inverse; empty if there are none. A job may say anything: what is not of its own run
    is left out."""
    written_paths, run = text(ad, "AdonUrlPaths"), request_builder.run_of(ad)
    try:
        paths = [_path(*fields) for fields in json.loads(written_paths)] if written_paths else []
        return [p for p in paths if run and parsed(p.id) == (run, "in") and is_url(p.id)]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []


def _path(name: str, site: str, size: int | None, host: str, rate_bps: float) -> UrlPath:
    known_bps = float(rate_bps) if 0 <= rate_bps < float("inf") else 0.0
    return UrlPath(name, str(site), None if size is None else int(size), str(host), known_bps)
