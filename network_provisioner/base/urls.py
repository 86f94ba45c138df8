"""Which site a URL belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit


def site_of_url(url: str, prefixes: Mapping[str, str]) -> str | None:
    """The site of the longest prefix of ``url``, else that of its host; None where neither is
    among ``prefixes``, which are URLs and host names, each with its site. A user name in the URL
    does not count."""
    plain = re.sub("(?<=://)[^/@]*@", "", url)
    fitting = [p for p in prefixes if f"{plain}/".startswith(f"{p.rstrip('/')}/")]
    return prefixes.get(max(fitting, key=len) if fitting else urlsplit(url).hostname or "")
