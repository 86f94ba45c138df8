"""The POST script of every job: ``python -I -S post.py --config FILE JOB RETRY RETURN``.

DAGMan runs it in the submit directory, also after a job that failed; the exit code is the job's
own. Around Pegasus's own check: ``--config FILE [--exitcode-path PROGRAM] [--retry RETRY] --
ARGUMENTS``.
"""

import sys


def main(argv: list[str]) -> int:
    """Run the hook. ``argv`` without the program's name."""
    here = __file__.rpartition("/")[0]
    sys.path.insert(0, here.rpartition("/")[0])
    from pegasus_hooks import by_watcher  # noqa: PLC0415

    return by_watcher.main("post", argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
