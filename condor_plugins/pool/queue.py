"""What jobs ask of the pool, and which machines would take them: functions of ClassAds.

A job is matched with a slot as the negotiator does it, by HTCondor's own library: Requirements of
both sides, memory and all. What a flavour's machines will advertise is in an ad of its own, as
HTCondor keeps it for machines that sleep: ``Offline``, so that the negotiator looks at it too, and
never gives it a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeGuard

import classad2
import htcondor2  # noqa: F401  # teaches classad2 HTCondor's functions: split, stringListMember

from condor_plugins.pool.scaling import Flavour, Machine, MachineState, RunningJob, width

IDLE, RUNNING, REMOVED, HELD, COMMON_FILES = 1, 2, 3, 5, 9
"""``JobStatus``; the last waits for files that others of its machine are being sent."""
VANILLA, SCHEDULER = 5, 7
FLAVOUR, POOL = "AdonFlavour", "AdonPool"
MATCHED = "MachineLastMatchTime"
"""In an ``Offline`` ad: when the negotiator found a job for it, which is HTCondor's own word that
it is wanted, if not by how many. Who advertises anew has to carry it over."""
# What a partitionable slot has in all, where the plain attribute is what it has left now.
_WHOLE = {"Cpus": "TotalSlotCpus", "Memory": "TotalSlotMemory", "Disk": "TotalSlotDisk"}
_HUGE = 1e18
_NO_MATCH = "no match found"
_OFFLINE: dict[str, Any] = {
    "MyType": "Machine",
    "TargetType": "Job",
    "Offline": True,
    "MyAddress": "<127.0.0.1:9?noUDP>",
    "SlotType": "Partitionable",
    "PartitionableSlot": True,
    "SlotID": 1,
    "State": "Unclaimed",
    "Activity": "Idle",
    "Start": True,
    "Rank": -1000.0,  # the negotiator takes what is there before
    "CurrentRank": 0.0,
    "KeyboardIdle": 100_000,
    "LoadAvg": 0.0,
    "ClassAdLifetime": 3600,
}
_USUAL: dict[str, Any] = {
    "Arch": "X86_64",
    "OpSys": "LINUX",
    "HasFileTransfer": True,
    "HasFileTransferPluginMethods": "data,dav,davs,file,ftp,http,https,s3,gs",
    "HasJICLocalConfig": True,
    "HasJICLocalStdin": True,
    "HasReconnect": True,
    "HasTransferInputRemaps": True,
    "Disk": 100_000_000,
    "TotalSlotDisk": 100_000_000.0,
}
_DOMAINS = {"FileSystemDomain": "FILESYSTEM_DOMAIN", "UidDomain": "UID_DOMAIN"}
_SETTING = re.compile(r"(?<![\w($])[A-Za-z_]\w*")
# Of the very machine that an ad was of; a flavour's speaks of none.
_ONES_OWN = (
    "AddressV1", "AdonWorker", "AuthenticatedIdentity", "AuthenticationMethod", "CloudInstanceId",
    "HardwareAddress", "LastHeardFrom", "Machine", "StartdIpAddr", "WithinResourceLimits",
    "Draining", "DrainReason", "DrainingRequestId", "Requirements",
)  # fmt: skip


JobKey = tuple[str, int, int]
SCHEDD = "ScheddName"
"""Not HTCondor's: in the ads of jobs here, whose they are."""


class JobRequest(NamedTuple):
    """Cores and memory, and the names of the flavours that would take the job."""

    cores: int
    memory_mb: int
    only: frozenset[str]


class Claim(NamedTuple):
    """What runs in a slot: its cores and memory, when it will have ended, and whose it is."""

    cores: int
    memory_mb: int
    end: float
    whose: str

    def on(self, kind: Flavour) -> RunningJob:
        """The same on a machine of a flavour."""
        cores = width(kind, self.cores, self.memory_mb) or kind.cores
        return RunningJob(cores, self.end, self.whose)


Claims = Mapping[str, Sequence[Claim]]
"""What runs, by the name of a slot, or of a machine of ours."""


class Matching:
    """Which of some slots take a job. Jobs that ask for the same are matched once.

    :param slots: an ad of each flavour by its name, as when nothing runs there.
    """

    def __init__(self, slots: Mapping[str, classad2.ClassAd]) -> None:
        self._slots = slots
        self._found: dict[object, JobRequest] = {}

    def of(self, job: classad2.ClassAd, alike: object) -> JobRequest:
        """What ``job`` asks for; jobs that are ``alike`` are taken as one."""
        if alike not in self._found:
            cores, memory_mb = amount(job, "RequestCpus", 1), amount(job, "RequestMemory", 0)
            only = frozenset(name for name, slot in self._slots.items() if job.symmetricMatch(slot))
            self._found[alike] = JobRequest(max(1, cores), memory_mb, only)
        return self._found[alike]


def amount(ad: classad2.ClassAd, name: str, default: int) -> int:
    """A number that an ad may give as an expression."""
    value = ad.eval(name) if name in ad else None
    return int(value) if _is_number(value) and value >= 0 else default


def asks_alike(job: Mapping[str, Any]) -> object:
    """The same for jobs that the schedd takes for alike (``AutoClusterId``) and whose words are."""
    attributes = ("Requirements", "RequestCpus", "RequestMemory", "RequestDisk")
    return (job.get(SCHEDD), job.get("AutoClusterId"), *(str(job.get(w)) for w in attributes))


def waits_for_a_slot(job: Mapping[str, Any]) -> bool:
    """Whether a machine more would help a job of the queue. One that the negotiator refused for
    anything but the want of a match, such as a user's limit, continues waiting."""
    if job.get("JobUniverse") != VANILLA or job.get("JobStatus") != IDLE:
        return False
    reason = job.get("LastRejMatchReason")
    refused = isinstance(reason, str) and _NO_MATCH not in reason.lower()
    return not refused or number(job, "LastMatchTime") > number(job, "LastRejMatchTime")


def number(ad: Mapping[str, Any], name: str) -> float:
    """0 if an ad has none."""
    value = ad.get(name)
    return float(value) if _is_number(value) else 0.0


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is one that can be counted on: what is undefined is a number to Python, and a job
    may ask for an infinity."""
    if not isinstance(value, int | float) or isinstance(value, classad2.Value):
        return False
    return abs(value) < _HUGE


def runs(job: Mapping[str, Any]) -> bool:
    """Whether a job has a slot."""
    there = isinstance(job.get("RemoteHost"), str)
    return there and job.get("JobStatus") in (RUNNING, COMMON_FILES)


def claim_of(job: classad2.ClassAd, end: float) -> Claim:
    """What a job that runs takes, until the Unix second ``end``."""
    cores, memory_mb = amount(job, "RequestCpus", 1), amount(job, "RequestMemory", 0)
    return Claim(max(1, cores), memory_mb, end, str(job.get("User")))


def job_key(job: Mapping[str, Any]) -> JobKey:
    """Schedd, cluster and process."""
    return str(job.get(SCHEDD)), int(number(job, "ClusterId")), int(number(job, "ProcId"))


def dag_key(job: Mapping[str, Any]) -> tuple[str, int]:
    """Schedd and cluster of the DAGMan that a job belongs to."""
    return str(job.get(SCHEDD)), int(number(job, "DAGManJobId"))


def slot_of(remote_host: str) -> str:
    """The name of the slot that a dynamic one was cut out of, else its own."""
    slot, at, rest = remote_host.partition("@")
    return f"{slot.partition('_')[0]}{at}{rest}"


def address_of(ad: Mapping[str, Any], name: str) -> str:
    """Where a daemon listens, as HTCondor writes it: ``192.0.2.7:9618?addrs=…``, "" if the ad
    does not say. ``MyAddress`` of a slot and ``PublicClaimId`` of a job that runs name a startd."""
    address = ad.get(name)
    return address.partition(">")[0].lstrip("<") if isinstance(address, str) else ""


def host_and_port(address: str) -> tuple[str, str]:
    """Both in such an address, an IPv6 one without brackets."""
    host, _, port = address.partition("?")[0].rpartition(":")
    return host.strip("[]"), port


def whole(slot: classad2.ClassAd) -> classad2.ClassAd:
    """A copy of a slot as it is when nothing runs in it."""
    ad = classad2.ClassAd(str(slot))
    for attribute, total in _WHOLE.items():
        if slot.get("PartitionableSlot") is True and total in slot:
            ad[attribute] = slot[total]
    return ad


def configured_attributes(config: Mapping[str, str]) -> dict[str, Any]:
    """What machines will advertise because HTCondor's settings for them say so: their domains, and
    what ``STARTD_ATTRS`` names."""
    reported: dict[str, Any] = {
        name: config[setting] for name, setting in _DOMAINS.items() if setting in config
    }
    for name in _SETTING.findall(config.get("STARTD_ATTRS", "")):
        with suppress(classad2.ClassAdException, KeyError):
            reported[name] = classad2.ExprTree(config[name])
    return reported


def offline_ad(
    flavour: Flavour,
    reported: Mapping[str, Any],
    version: str,
    like: classad2.ClassAd | None = None,
    pool: str = "",
) -> classad2.ClassAd:
    """What machines of a flavour will advertise: as one that was seen does (``like``), else as such
    machines usually do, with the values ``reported``. ``version`` is HTCondor's, which jobs ask
    for; ``pool`` is whose machines they are."""
    ad = classad2.ClassAd({**_USUAL, **reported}) if like is None else whole(like)
    for name in _ONES_OWN:
        ad.pop(name, None)
    name = f"{flavour.name}.{pool or 'adon'}"
    ad.update(
        {
            **_OFFLINE,
            "Name": f"slot1@{name}",
            "Machine": name,
            FLAVOUR: flavour.name,
            POOL: pool,
            "Cpus": flavour.cores,
            "TotalCpus": flavour.cores,
            "TotalSlotCpus": flavour.cores,
            "Memory": flavour.memory_mb,
            "TotalSlotMemory": flavour.memory_mb,
        }
    )
    ad.setdefault("CondorVersion", version)
    ad["Requirements"] = classad2.ExprTree("Start && TARGET.RequestCpus <= MY.Cpus")
    return ad


def own_machines(
    slots: Iterable[classad2.ClassAd], claims: Claims
) -> tuple[list[Machine], dict[str, classad2.ClassAd]]:
    """Slots that the pool has without us as machines, and an ad of each of their flavours, which
    are those that take the same jobs.
    """
    machines, ads = [], dict[str, classad2.ClassAd]()
    names: dict[object, str] = {}
    for slot in slots:
        entire = whole(slot)
        cores, memory = amount(entire, "Cpus", 0), amount(entire, "Memory", 0)
        if not cores or slot.get("Draining") is True:
            continue
        traits = ("Arch", "OpSysAndVer", "AdonSite", "PegasusSite", "Start", "CondorVersion")
        key = (cores, memory, *(str(slot.lookup(t)) if t in slot else "" for t in traits))
        name = names.setdefault(key, f"own-{len(names)}")
        ads.setdefault(name, entire)
        kind = Flavour(name, cores, memory, 0.0, 0.0, 0.0)
        where = str(slot.get("Name"))
        jobs = tuple(claim.on(kind) for claim in claims.get(where, ()))
        machines.append(Machine(where, kind, MachineState.RUNNING, 0.0, jobs, fixed=True))
    return machines, ads
