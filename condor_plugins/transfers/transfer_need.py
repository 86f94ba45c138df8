"""Whether HTCondor moves files for a job at all: decided from its ad, before anything else of ours
is imported, since most jobs of some pools never do."""

from __future__ import annotations

from condor_plugins.transfers.jobad import JobAd, text

_WITH_TRANSFER = (5, 10, 13)  # universes: vanilla (containers, too), java, vm
_PEGASUS_OWN = "pegasus::"  # transfer, cleanup, dirmanager, …


def no_transfer(ad: JobAd) -> str:
    """Why nothing that needs a path moves between access point and slot; empty where it may."""
    universe = ad.get("JobUniverse")
    if universe not in _WITH_TRANSFER:
        return f"jobs of universe {universe} have no files moved"
    setting = text(ad, "ShouldTransferFiles").upper()
    if setting == "NO":
        return "the job wants no files moved"
    shared = text(ad, "FileSystemDomain")
    if setting == "IF_NEEDED" and shared and shared == text(ad, "MachineAttrFileSystemDomain0"):
        return "access point and slot share a file system"
    if text(ad, "pegasus_wf_xformation").startswith(_PEGASUS_OWN):
        return "Pegasus's own job: the paths of its transfers are asked for by PRE"
    return ""
