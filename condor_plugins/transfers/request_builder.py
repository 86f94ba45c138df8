"""What a run of a job asks of the network: pure functions of its ad."""

from __future__ import annotations

from condor_plugins.pool.sites import site_of_match
from condor_plugins.transfers.ids import Direction, Run, queue_number
from condor_plugins.transfers.jobad import JobAd, text
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.hookconfig import HookConfig

_LONGEST = 200  # characters of a name that is passed on


def ends(ad: JobAd, home: str, direction: Direction) -> tuple[str, str]:
    """Source and destination site. ``home`` is the access point's; the slot's is empty where
    neither slot nor job names one."""
    slot = site_of_match(ad)
    return (home, slot) if direction == "in" else (slot, home)


def unmarked(ad: JobAd, home: str) -> str:
    """Why there is no pair of sites to ask for, in words; empty where there is one."""
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
    )


def _number(run: Run) -> str:
    """As ``condor_q`` shows it: ``12.0``."""
    known = queue_number(run.job)
    return f"{known[1]}.{known[2]}" if known else run.job


def _name(said: str | None) -> str:
    """What the broker takes as a name: printable, and no longer than a name should be."""
    return "".join(c for c in said or "" if c.isprintable())[:_LONGEST]
