"""ClassAds of jobs as HTCondor prints them, one ``Name = value`` a line: what hooks and event logs
have; and what they say of a job's transfers.

Values are texts, numbers and truth values; any other expression stays as its text. What is
undefined is left out: so HTCondor writes what a slot does not have. HTCondor's own bindings would
take ten times as long to import as a hook has to run; nothing slow is imported here, since most
jobs of some pools have no files moved at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

Value = str | int | float | bool
JobAd = Mapping[str, Value]

_TRUTH = {"true": True, "false": False}
_NO_VALUES = ("undefined", "error")
_MOST_DIGITS = 20
_HUGE = 1e18
_WITH_TRANSFER = (5, 10, 13)  # universes: vanilla (containers, too), java, vm
_WITHOUT_SLOT = (7, 9, 12)  # scheduler, grid (another batch system), local
_PEGASUS_OWN = "pegasus::"  # transfer, cleanup, dirmanager, …
CLUSTERS = ("pegasus::seqexec", "pegasus::mpiexec")
"""What runs several of a user's jobs as one."""
_MOST_FILES = 2000  # looked at: about 10 ms on a local disk
_NOTHING = ("", "/dev/null")
Size = Callable[[str], int]
MACHINE_ATTRIBUTES = ("AdonSite", "PegasusSite", "FileSystemDomain")
"""Of a slot, kept in the ad of the job that gets it (``SYSTEM_JOB_MACHINE_ATTRS``)."""
EVENT_ATTRIBUTES = (
    "GlobalJobId", "NumShadowStarts", "RemoteHost", "ProcId",
    *(f"MachineAttr{name}0" for name in MACHINE_ATTRIBUTES),
    "Owner", "JobUniverse", "ShouldTransferFiles", "FileSystemDomain", "Cmd", "DiskUsage",
    "DAGNodeName", "JobBatchName", "ProjectName", "AcctGroup", "AccountingGroup", "AdonSite",
    "AdonApplication", "pegasus_site", "pegasus_wf_uuid", "pegasus_wf_name", "pegasus_wf_app",
    "pegasus_wf_xformation", "AdonInId", "AdonInState", "AdonInReason", "AdonInBytes", "AdonInTold",
    "AdonUrlPaths",
)  # fmt: skip
"""Of a job, written with each of its events (``EVENT_LOG_JOB_AD_INFORMATION_ATTRS``)."""


def parse(lines: Iterable[str]) -> dict[str, Value]:
    """The ad in these lines; what is no attribute is passed over."""
    ad: dict[str, Value] = {}
    for line in lines:
        name, equals, value = line.partition(" = ")
        value = value.strip()
        if equals and name and not name[0].isspace() and value.lower() not in _NO_VALUES:
            ad[name] = _value(value)
    return ad


def _value(text: str) -> Value:
    if len(text) > 1 and text[0] == text[-1] == '"':
        inner = text[1:-1]
        return inner.replace('\\"', '"').replace("\\\\", "\\") if "\\" in inner else inner
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    digits = text.removeprefix("-")
    if digits.isdecimal() and digits.isascii() and len(digits) <= _MOST_DIGITS:
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def line(name: str, value: Value) -> str:
    """One attribute as HTCondor reads it."""
    if isinstance(value, bool):
        return f"{name} = {str(value).lower()}\n"
    if isinstance(value, str):
        plain = "".join(c if c.isprintable() else " " for c in value)
        escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
        return f'{name} = "{escaped}"\n'
    return f"{name} = {value}\n"


def text(ad: JobAd, *names: str) -> str:
    """The first of these attributes that is a text with something in it, else empty."""
    for name in names:
        value = ad.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def number(ad: JobAd, name: str) -> float | None:
    """A number; None if it is none."""
    value = ad.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _HUGE else None  # neither infinite nor no number


def takes_a_slot(ad: JobAd) -> bool:
    """Whether a job runs in a slot of the pool, by its universe."""
    return ad.get("JobUniverse") not in _WITHOUT_SLOT


def no_transfer(ad: JobAd) -> str:
    """Why nothing that needs a path moves between access point and slot; empty if it may."""
    universe = ad.get("JobUniverse")
    if universe not in _WITH_TRANSFER:
        return f"jobs of universe {universe} have no files moved"
    setting = text(ad, "ShouldTransferFiles").upper()
    if setting == "NO":
        return "the job wants no files moved"
    shared = text(ad, "FileSystemDomain")
    if setting == "IF_NEEDED" and shared and shared == text(ad, "MachineAttrFileSystemDomain0"):
        return "access point and slot share a file system"
    program = text(ad, "pegasus_wf_xformation")
    if program.startswith(_PEGASUS_OWN) and program not in CLUSTERS:
        return "Pegasus's own job: the paths of its transfers are asked for by PRE"
    return ""


def bytes_sent(ad: JobAd, size: Size | None = None) -> int | None:
    """Bytes that an access point sends to a slot before a job runs, None if unknown.

    Asked are the files themselves, as the job's owner and right before they are sent. What HTCondor
    noted when the job was submitted (whole MiB) replaces them if they are unknown: too many of
    them, or not to be seen from here. ``size`` gives the bytes of a file or folder by its absolute
    path and raises OSError.
    """
    import os  # noqa: PLC0415 - jobs whose files nobody moves never get here

    names = [name for name in _inputs(ad) if "://" not in name]
    measure = size or _Sizes()
    base = text(ad, "Iwd")
    try:
        # os.path, since a hook that runs before every job has no time for pathlib.
        return sum(measure(os.path.join(base, name)) for name in names)  # noqa: PTH118
    except OSError:
        noted = None if is_common(ad) else number(ad, "TransferInputSizeMB")
        return None if noted is None or noted < 0 else int(noted * 2**20)


def urls(ad: JobAd) -> list[str]:
    """Those of what is sent that come from elsewhere, each once."""
    names = (name for name in _inputs(ad) if "://" in name and not name.startswith("file:"))
    return list(dict.fromkeys(names))


def is_common(ad: JobAd) -> bool:
    """Whether a shadow sends what several jobs of a machine share, and not a job's own input."""
    process = number(ad, "ProcId")
    return process is not None and process < 0


def _inputs(ad: JobAd) -> Iterator[str]:
    """What is sent before a job runs: files and folders of this machine, and URLs."""
    return _common_names(ad) if is_common(ad) else _names(ad)


def _names(ad: JobAd) -> Iterator[str]:
    yield from _each(text(ad, "TransferInput"))
    # Beside slots that are carved out of another (slot1_2@…) alone HTCondor makes one for data.
    slot = text(ad, "RemoteHost").partition("@")[0]
    if "RequestedCatalogs" not in ad or not slot.rpartition("_")[2].isdecimal() or "_" not in slot:
        yield from _common_names(ad)
    if ad.get("TransferExecutable", True) is not False and text(ad, "Cmd"):
        yield text(ad, "Cmd")
    sent = ad.get("TransferIn", True) is not False and ad.get("StreamIn", False) is not True
    if sent and text(ad, "In") not in _NOTHING:
        yield text(ad, "In")


def _common_names(ad: JobAd) -> Iterator[str]:
    """What several jobs of a machine share: containers' images are such catalogs, too. Sent are
    those that the machine does not have yet."""
    wanted = text(ad, "TransferTheseCatalogs")

    def missing(catalog: str) -> bool:
        return not wanted or f'"{catalog}@' in wanted

    if missing(f"ClusterId_{ad.get('ClusterId')}"):
        yield from _each(text(ad, "CommonInputFiles"))
    for name in map(str.strip, text(ad, "CommonInputCatalogs").split(",")):
        if name and missing(name):
            yield from _each(text(ad, f"_x_catalog_{name}"))


def _each(names: str) -> Iterator[str]:
    return filter(None, map(str.strip, names.split(",")))


class _Sizes:
    """Sizes from the file system; raises OSError if there is too much to look at."""

    def __init__(self) -> None:
        self._left = _MOST_FILES

    def __call__(self, path: str) -> int:
        import os  # noqa: PLC0415
        import stat  # noqa: PLC0415

        self._left -= 1
        if self._left < 0:
            raise OSError("too many files")
        status = os.stat(path)  # noqa: PTH116 - see bytes_sent
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        with os.scandir(path) as entries:
            return sum(self(entry.path) for entry in entries)
