"""The PRE script of every job: ``python -I -S pre.py --config FILE JOB RETRY MAX_RETRIES``.

DAGMan runs it in the submit directory. It exits 0 (a failure of ours never fails a workflow), or
with DEFER_STATUS where the DAG says that DAGMan asks again then. Jobs that move no data leave here,
before anything but ``sys`` is imported.
"""

import sys


def main(argv: list[str]) -> int:
    """Run the hook. ``argv`` without the program's name."""
    # Pegasus names its transfer jobs stage_in_*, stage_inter_*, stage_out_*.
    if len(argv) >= 3 and "stage_" not in argv[2] and not moves_its_own(argv[2]):
        return 0
    here = __file__.rpartition("/")[0]
    sys.path.insert(0, here.rpartition("/")[0])
    from pegasus_hooks import by_watcher  # noqa: PLC0415

    return by_watcher.main("pre", argv)


def moves_its_own(job: str) -> bool:
    """Whether ``job`` of the submit directory that we are in has a PegasusLite script that brings
    or takes files. Nothing is imported for it: most jobs have none."""
    try:
        dag = next(iter(_after("braindump.yml", b"dag: "))).strip(b"\"' ")
        folder = next(iter(_after(dag, b"JOB " + job.encode() + b" "))).rpartition(b"/")[0]
        script = (folder + b"/" if folder else b"") + job.encode() + b".sh"
        with open(script, "rb") as file:  # noqa: PTH123 - Path's module takes longer than the rest
            return b"pegasus-transfer" in file.read()
    except (OSError, ValueError, StopIteration):  # no such script, or no submit directory at all
        return False


def _after(path: str | bytes, mark: bytes) -> list[bytes]:
    """The rest of the first line that begins with ``mark``; empty for none."""
    with open(path, "rb") as file:  # noqa: PTH123
        text = file.read()
    at = 0 if text.startswith(mark) else text.find(b"\n" + mark) + 1
    is_there = text[at : at + len(mark)] == mark
    return [text[at + len(mark) :].split(b"\n", 1)[0].strip()] if is_there else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
