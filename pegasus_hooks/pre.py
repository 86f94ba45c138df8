"""The PRE script of every job: ``python -I -S pre.py --config FILE JOB RETRY MAX_RETRIES``.

DAGMan runs it in the submit directory. It always exits 0: a failure of ours never fails a workflow.
Jobs that move no data leave here, before anything but ``sys`` is imported.
"""

import sys


def main(argv: list[str]) -> int:
    """Run the hook. ``argv`` without the program's name."""
    # Pegasus names its transfer jobs stage_in_*, stage_inter_*, stage_out_*.
    if len(argv) >= 3 and "stage_" not in argv[2]:
        return 0
    here = __file__.rpartition("/")[0]
    sys.path.insert(0, here.rpartition("/")[0])
    from pegasus_hooks import hookrun  # noqa: PLC0415

    return hookrun.pre(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
