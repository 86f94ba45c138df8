"""The site selector that Pegasus asks once per job: ``python -I -S callout.py FILE``.

For ``pegasus.selector.site = NonJavaCallout``. It prints one line, ``SOLUTION:<site>``. The first
call of a planner has ``adon site map`` map the whole workflow, and keeps the answers in a file; all
later calls look their job up there, with nothing imported but what the interpreter holds already.
"""

import sys
from posix import environ, fstat, getppid, getuid, write

HEAD = b"adon callout 2\n"


class CalloutJob:
    """What the planner says of a job; ``offered`` are the sites it may go to, in its order."""

    def __init__(self, text: bytes) -> None:
        self.fields = dict(line.partition(b"=")[::2] for line in reversed(text.splitlines()))
        self.id = self.fields.get(b"job.id", b"")
        # ``<site> <file server>``, once per file server. NONE is Pegasus's word for no site.
        sites = (line[12:].rpartition(b" ")[0] for line in text.splitlines()
                 if line.startswith(b"resource.id="))  # fmt: skip
        self.offered = list(
            dict.fromkeys(site for site in sites if site.upper() not in (b"", b"NONE"))
        )


def read(path: bytes, own: bool = False) -> bytes:
    """A file's content, empty if it cannot be read, or is not this user's ``own``."""
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123
            return b"" if own and fstat(stream.fileno()).st_uid != getuid() else stream.readall()
    except (OSError, ValueError):
        return b""


def answers(pid: int) -> bytes:
    """Where the answers for a planner's process are kept: its number and start tell it from all
    others."""
    started = read(b"/proc/%d/stat" % pid).rpartition(b")")[2].split()[19:20]
    return b"%s/adon-callout-%d-%d-%s" % (
        environ.get(b"ADON_CALLOUT_CACHE") or environ.get(b"TMP") or b"/tmp",
        getuid(), pid, started[0] if started else b"",
    )  # fmt: skip


def choose(job: CalloutJob, table: bytes) -> bytes:
    """The mapping's site for a job where it is offered, else any that is: jobs are spread by id."""
    entry = b"\n" + job.id + b"\t"
    at = table.find(entry) + len(entry)
    site = table[at : table.find(b"\n", at)] if at >= len(entry) else b""
    if site in job.offered:
        return site
    return job.offered[sum(job.id) % len(job.offered)] if job.offered else b"NONE"


def main() -> None:
    """Answer the planner, whatever happens: one without an answer waits for minutes."""
    job = CalloutJob(read(sys.argv[1].encode("utf-8", "surrogateescape") if sys.argv[1:] else b""))
    table = read(answers(getppid()), own=True)
    if job.offered and not table.startswith(HEAD):
        sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])
        from pegasus_hooks import callout_first  # noqa: PLC0415

        table = callout_first.make_table(job.offered, HEAD, answers)
    write(1, b"SOLUTION:" + choose(job, table) + b"\n")


if __name__ == "__main__":
    main()
