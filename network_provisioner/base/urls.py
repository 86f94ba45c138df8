"""What URLs say of where they lead, and which site that is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

_USER = re.compile("(?<=://)[^/@]*@")


def plain(url: str) -> str:
    """A URL without the name of the credential that HTCondor takes for it: ``name+https://…``. What
    has no scheme stays as it is."""
    scheme, colon, rest = url.partition("://")
    return f"{scheme.rpartition('+')[2].lower()}://{rest}" if colon else url


def host_of(url: str) -> str:
    """Its server, empty where it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def site_of_url(url: str, sources: Mapping[str, str]) -> str:
    """The site of the longest prefix of a URL or path that ``sources`` has, else that of its
    server's name; empty where neither is there. A prefix ends where a name in the URL does, and a
    user's name does not count."""
    found = _USER.sub("", plain(url))
    prefixes = [p for p in sources if "/" in p and f"{found}/".startswith(f"{p.rstrip('/')}/")]
    return sources.get(max(prefixes, key=len, default=host_of(found)), "")
