"""Which site a slot belongs to, and a job: pure functions of ClassAds, quick to import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from condor_plugins.jobs.jobad import text

Ad = Mapping[str, Any]

_SITE_REQUIRED = re.compile(
    r"(?:TARGET\.)?(?:PegasusSite|AdonSite)\s*(?:==|=\?=)\s*\"([^\"]+)\"", re.IGNORECASE
)
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")


def site_word(site: str) -> str:
    """A site's name as part of an attribute's name."""
    return _NO_WORD.sub("_", site)


def site_of_slot(ad: Ad) -> str:
    """The site a slot belongs to, empty if it does not say."""
    return text(ad, "AdonSite", "PegasusSite")


def site_of_job(ad: Ad) -> str:
    """The site a job is bound to: by its own word (Pegasus writes ``pegasus_site``), or because its
    requirements ask for one; empty if it may run anywhere."""
    if named := text(ad, "AdonSite", "pegasus_site"):
        return named
    match = _SITE_REQUIRED.search(str(ad.get("Requirements", "")))
    return match.group(1) if match else ""


def site_of_match(ad: Ad) -> str:
    """The site of the slot that a job was given, as the schedd noted it in the job's ad
    (``SYSTEM_JOB_MACHINE_ATTRS``), else the site that the job is bound to; empty for neither."""
    return text(ad, "MachineAttrAdonSite0", "MachineAttrPegasusSite0") or site_of_job(ad)
