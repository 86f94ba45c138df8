"""The watcher's start file: ``python -I -S watcher.py --config FILE [--lock NUMBER]``.

PRE starts it where none runs; see :mod:`monitors.watcher`.
"""

import sys


def main(argv: list[str]) -> int:
    """Run the watcher. ``argv`` without the program's name."""
    here = __file__.rpartition("/")[0]
    sys.path.insert(0, here.rpartition("/")[0])
    from monitors.watcher import program  # noqa: PLC0415
    from pegasus_hooks.prepost import hookrun, watched_jobs  # noqa: PLC0415
    from pegasus_hooks.prepost.watched_jobs import listener_of  # noqa: PLC0415

    return program.main(argv, watched_jobs, listener_of, hookrun.run_for_watcher)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
