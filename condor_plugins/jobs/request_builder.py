"""What a run of a job asks of the network, and by which id: pure functions of its ad.

    condor:<GlobalJobId, with - for #>:in:<NumShadowStarts>        and :out:
    condor:<GlobalJobId, with - for #>:in@<site>:<NumShadowStarts> of what URLs name at a site

Every start of a shadow is a run of its own, so a path that an earlier run left behind is told from
one that is needed now. Files that several jobs of a machine share are sent once, by a shadow with a
process number below 0 in the name of one of them: ``<GlobalJobId>.common1000`` is its job here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from condor_plugins.jobs.jobad import JobAd, text
from condor_plugins.jobs.sites import site_of_match
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.hookconfig import HookConfig

Direction = Literal["in", "out"]

PREFIX = "condor:"
_ID = re.compile(
    r"condor:(?P<job>[!-~]+):(?P<way>in|out)(?:@(?P<site>[^:]+))?:(?P<starts>[0-9]{1,9})(?:\.[0-9]+)?\Z"
)
_JOB = re.compile(
    r"(?P<schedd>[!-~]+)-(?P<cluster>[0-9]+)\.(?P<proc>[0-9]+)-[0-9]+(?:\.common(?P<shadow>[0-9]+))?\Z"
)
_COMMON = re.compile(r"\.common[0-9]+\Z")
_LONGEST = 200  # characters of a name that is passed on


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """``job`` is the GlobalJobId with - for #, ``starts`` counts its shadows from 1."""

    job: str
    starts: int

    @property
    def common(self) -> bool:
        """Whether it sends what several jobs of a machine share."""
        return _COMMON.search(self.job) is not None

    @property
    def queued_job(self) -> str:
        """The job in the schedd's queue in whose name it runs."""
        return _COMMON.sub("", self.job)

    def transit(self, direction: Direction, site: str = "") -> str:
        """The id of the path for its input or output; of input that comes from a ``site`` by URL,
        that one's."""
        at = "@" + job_name(site).replace(":", "_") if site else ""
        return f"{PREFIX}{self.job}:{direction}{at}:{self.starts}"


def job_name(global_job_id: str) -> str:
    """A GlobalJobId in the form that ids have: printable, without spaces."""
    return "".join(c if "!" <= c <= "~" else "_" for c in global_job_id.replace("#", "-"))


def run_name(global_job_id: str, process: object) -> str:
    """The job of a run, by its id and its shadow's process number."""
    if isinstance(process, int) and process < 0:
        return f"{job_name(global_job_id)}.common{-process}"
    return job_name(global_job_id)


def run_of(ad: Mapping[str, Any]) -> Run | None:
    """The run that a job's ad is of; None if it does not say."""
    job, starts = ad.get("GlobalJobId"), ad.get("NumShadowStarts")
    if not isinstance(job, str) or not job or not isinstance(starts, int):
        return None
    return Run(run_name(job, ad.get("ProcId")), starts)


def parsed(transit_id: str) -> tuple[Run, Direction] | None:
    """Whose transit it is; None if it is no run's."""
    match = _ID.match(transit_id)
    if match is None:
        return None
    way: Direction = "in" if match["way"] == "in" else "out"
    return Run(match["job"], int(match["starts"])), way


def is_url(transit_id: str) -> bool:
    """Whether a run's transit is for what URLs name."""
    match = _ID.match(transit_id)
    return match is not None and match["site"] is not None


def queue_number(job: str) -> tuple[str, int, int] | None:
    """Schedd, cluster and process in a job's name; None if it is not of that shape."""
    match = _JOB.match(job)
    return match and (match["schedd"], int(match["cluster"]), int(match["proc"]))


def shadow_number(job: str) -> tuple[int, int] | None:
    """Cluster and process as the job's shadow is started with them; None as above."""
    match = _JOB.match(job)
    if match is None:
        return None
    return int(match["cluster"]), -int(match["shadow"]) if match["shadow"] else int(match["proc"])


def ends(ad: JobAd, home: str, direction: Direction) -> tuple[str, str]:
    """Source and destination site. ``home`` is the access point's; the slot's is empty if
    neither slot nor job names one."""
    slot = site_of_match(ad)
    return (home, slot) if direction == "in" else (slot, home)


def missing_site_reason(ad: JobAd, home: str) -> str:
    """Why there is no pair of sites to ask for, as text; empty if there is one."""
    slot = site_of_match(ad)
    if not slot:
        where = text(ad, "RemoteHost") or "the slot"
        return f"{where} names no site, expected AdonSite or PegasusSite in STARTD_ATTRS"
    if slot == home:
        return f"both ends are {home}: nothing crosses the network"
    return ""


def request(
    ad: JobAd, run: Run, direction: Direction, size_bytes: int | None, config: HookConfig
) -> TransitRequest:
    """What is asked for. Whose it is says Pegasus where it wrote the job (workflow, application,
    node), else HTCondor: owner, accounting group, batch name, number."""
    src, dst = ends(ad, config.site or "", direction)
    label = text(ad, "pegasus_wf_name").rpartition("-")[0]
    app = text(ad, "pegasus_wf_app")
    batch = text(ad, "JobBatchName").partition(".dag+")[0]  # as DAGMan calls those of its nodes
    application = text(ad, "AdonApplication") or label or batch
    src_host, dst_host = hosts(ad, run, direction)
    return TransitRequest(
        id=run.transit(direction),
        src=src,
        dst=dst,
        size_bytes=size_bytes,
        template=config.template,
        workflow=_name(text(ad, "pegasus_wf_uuid")),
        job=_name(text(ad, "DAGNodeName") or _number(run)),
        retry=max(0, run.starts - 1),
        application=_name(application),
        user=_name(text(ad, "Owner")),
        project=_name(text(ad, "ProjectName", "AcctGroup", "AccountingGroup") or config.project),
        experiment=_name(app if app not in ("", "none") else application),
        src_host=src_host,
        dst_host=dst_host,
    )


def hosts(ad: JobAd, run: Run, direction: Direction) -> tuple[str, str]:
    """The machines of access point and slot, source first; "" if the ad names no slot."""
    known, slot = queue_number(run.job), text(ad, "RemoteHost").rpartition("@")[2]
    if known is None or not slot:
        return "", ""
    home = known[0].rpartition("@")[2]
    src, dst = (home, slot) if direction == "in" else (slot, home)
    return _name(src), _name(dst)


def _number(run: Run) -> str:
    """As ``condor_q`` shows it: ``12.0``."""
    known = queue_number(run.job)
    return f"{known[1]}.{known[2]}" if known else run.job


def _name(name: str | None) -> str:
    """What the broker takes as a name: printable, and no longer than a name should be."""
    return "".join(c for c in name or "" if c.isprintable())[:_LONGEST]
