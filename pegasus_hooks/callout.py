"""The site selector that Pegasus asks once per job: ``python -I -S callout.py FILE``.

For ``pegasus.selector.site = NonJavaCallout``. It prints exactly one line, ``SOLUTION:<site>``, and
leaves at once with 0. The first call of a planner has the whole workflow mapped; this and all later
calls look their job up in what it left behind. Nothing is imported on the way but what the
interpreter holds already.

A table of answers is bytes: a head line, then ``j<job>`` and its sites in order of preference, and
``t<transformation>`` and the sites that can run it, between tabs, one entry per line.
"""

import sys
from posix import _exit, environ, getppid, getuid, lstat, stat, write
from stat import S_ISDIR, S_ISREG

HEAD = b"adon callout 1\n"
FALLBACK_DIRECTORY = b"/tmp"
_OPTIONS = b"ADON_"


class Job:
    """What the planner says of a job; ``offered`` are the sites it may go to, in its order."""

    def __init__(self, text: bytes) -> None:
        self.offered: list[bytes] = []
        self.fields: dict[bytes, bytes] = {}
        for line in text.splitlines():
            key, _, value = line.partition(b"=")
            if key != b"resource.id":
                self.fields.setdefault(key, value)
                continue
            # ``<site> <file server>``, once per file server. NONE is Pegasus's word for no site.
            site = value.rpartition(b" ")[0]
            if site and site.upper() != b"NONE" and site not in self.offered:
                self.offered.append(site)
        self.id = self.fields.get(b"job.id", b"")
        self.transformation = self.fields.get(b"transformation", b"")


class Planner:
    """The process that asks. ``key`` tells one planning of one workflow from all others."""

    def __init__(self, job: Job) -> None:
        self.pid = getppid()
        self.command = read(b"/proc/%d/cmdline" % self.pid).split(b"\0")[:-1]
        self.started = started(self.pid)
        parts = [read(b"/proc/sys/kernel/random/boot_id"), *self.command, _state(self.command)]
        parts += [job.fields.get(b"wf.name", b""), job.fields.get(b"wf.index", b"")]
        parts += [k + b"=" + v for k, v in sorted(environ.items()) if k.startswith(_OPTIONS)]
        self.key = b"%d-%s-%016x" % (self.pid, self.started, number(b"\0".join(parts)))


def started(pid: int) -> bytes:
    """When a process began, in ticks since boot: with its number, its identity. Empty if ended."""
    return (read(b"/proc/%d/stat" % pid).rpartition(b")")[2].split() or [b""] * 20)[19]


def _state(command: list[bytes]) -> bytes:
    """The workflow file as it is now: a cheap stand-in for its content."""
    try:
        found = stat(command[-1])
    except (OSError, IndexError, ValueError):
        return b""
    if not S_ISREG(found.st_mode):
        return b""
    return b"%d %d %d %d" % (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def read(path: bytes) -> bytes:
    """A file's content, empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123
            return stream.readall()
    except (OSError, ValueError):
        return b""


def number(text: bytes) -> int:
    """A number for a text, the same in every process (FNV-1a, 64 bits)."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def directory() -> bytes:
    """Where answers are kept: a folder of this user alone, needing no home."""
    base = environ.get(b"ADON_CALLOUT_CACHE") or environ.get(b"TMP") or FALLBACK_DIRECTORY
    return base + b"/adon-callout-%d" % getuid()


def ours(path: bytes) -> bool:
    """Whether the folder is this user's own: others may write to its parent."""
    try:
        found = lstat(path)
    except OSError:
        return False
    return S_ISDIR(found.st_mode) and found.st_uid == getuid() and not found.st_mode & 0o077


def listed(table: bytes, kind: bytes, name: bytes) -> list[bytes]:
    """The sites that a table lists for a job (``j``) or a transformation (``t``)."""
    entry = b"\n" + kind + name + b"\t"
    at = table.find(entry)
    if at < 0:
        return []
    begin = at + len(entry)
    return table[begin : table.index(b"\n", begin)].split(b"\t")


def choose(job: Job, table: bytes) -> tuple[bytes, str]:
    """The site that answers, always one of those offered, and "" or why it is not the mapping's.

    The built-in rule spreads jobs evenly by their ids over the sites that can run them.
    """
    if not job.offered:
        return b"NONE", "the planner offers no site: none has a file server for its scratch"
    for site in listed(table, b"j", job.id):
        if site in job.offered:
            return site, ""
    able = listed(table, b"t", job.transformation)
    sites = [site for site in job.offered if site in able] or job.offered
    return sites[number(job.id) % len(sites)], "it is not in the mapping, or its sites not offered"


def answer(argument: bytes) -> bytes:
    """The site for the job described in the file ``argument``."""
    job = Job(read(argument))
    try:
        planner = Planner(job)
        folder = directory()
        table = read(folder + b"/" + planner.key) if ours(folder) else b""
        first = not table.startswith(HEAD)
        if first:
            _import_rest()
            from pegasus_hooks import callout_first  # noqa: PLC0415

            table, announce = callout_first.make_table(job, planner, folder)
        site, reason = choose(job, table)
        if first:
            announce()
        elif reason:
            _import_rest()
            from pegasus_hooks import callout_notes  # noqa: PLC0415

            callout_notes.note(folder, planner.key, job.id, site, reason)
    except Exception as error:  # whatever it is: a planner without an answer waits for minutes
        site, _ = choose(job, b"")
        _complain(f"{type(error).__name__}: {error}")
    return site


def _import_rest() -> None:
    root = __file__.rpartition("/")[0].rpartition("/")[0]
    if root not in sys.path:
        sys.path.insert(0, root)


def _complain(problem: str) -> None:
    line = f"adon: placed by the built-in rule: {' '.join(problem.split())}\n"
    try:
        write(2, line.encode("utf-8", "backslashreplace"))
    except OSError:
        return


def main() -> None:
    """Answer, and be gone: a process that lingers holds up the planner."""
    argument = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        write(1, b"SOLUTION:" + answer(argument.encode("utf-8", "surrogateescape")) + b"\n")
    except OSError:
        _exit(0)  # the planner is gone: nobody to tell
    _exit(0)


if __name__ == "__main__":
    main()
