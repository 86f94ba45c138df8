"""The POST script of every job: ``python -I -S post.py --config FILE JOB RETRY RETURN``.

DAGMan runs it in the submit directory, also after a job that failed; the exit code is the job's
own. Around Pegasus's own check: ``--config FILE --exitcode-path PROGRAM [--retry RETRY] --
ARGUMENTS``; there jobs that moved no data leave before anything is imported.
"""

import sys


def main(argv: list[str]) -> int:
    """Run the hook. ``argv`` without the program's name."""
    if has_nothing_to_do(argv):
        import posix  # noqa: PLC0415

        try:  # noqa: SIM105 - contextlib takes longer to load than all of this
            posix.execv(argv[3], argv[3:4] + argv[argv.index("--") + 1 :])
        except OSError:
            pass  # the hook below says it
    here = __file__.rpartition("/")[0]
    sys.path.insert(0, here.rpartition("/")[0])
    from pegasus_hooks.prepost import hookrun  # noqa: PLC0415

    return hookrun.post(argv)


def has_nothing_to_do(argv: list[str]) -> bool:
    """Whether Pegasus's check is all that there is to do: of a job for which nothing was asked, and
    with ``-M``, which has the check keep the sizes of what the job wrote."""
    if argv[:1] + argv[2:3] != ["--config", "--exitcode-path"] or "--" not in argv:
        return False
    output = argv[-1]
    if "-M" not in argv or not output.endswith(".out") or "stage_" in output.rpartition("/")[2]:
        return False
    try:
        with open(output.removesuffix(".out") + ".adon.json", "rb"):  # noqa: PTH123
            return False
    except OSError:
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
