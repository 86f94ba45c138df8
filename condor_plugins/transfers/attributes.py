"""Which attributes HTCondor has to note so that runs can be followed."""

MACHINE = ("AdonSite", "PegasusSite", "FileSystemDomain")
"""Of a slot, kept in the ad of the job that gets it (``SYSTEM_JOB_MACHINE_ATTRS``)."""

EVENT = (
    "GlobalJobId", "NumShadowStarts", "RemoteHost", *(f"MachineAttr{name}0" for name in MACHINE),
    "Owner", "JobUniverse", "ShouldTransferFiles", "FileSystemDomain", "Cmd", "DiskUsage",
    "DAGNodeName", "JobBatchName", "ProjectName", "AcctGroup", "AccountingGroup", "AdonSite",
    "AdonApplication", "pegasus_site", "pegasus_wf_uuid", "pegasus_wf_name", "pegasus_wf_app",
    "pegasus_wf_xformation", "AdonInId", "AdonInState", "AdonInReason", "AdonInBytes", "AdonInTold",
)  # fmt: skip
"""Of a job, written with each of its events (``EVENT_LOG_JOB_AD_INFORMATION_ATTRS``)."""
