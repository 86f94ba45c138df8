"""The watcher's start file: ``python -I -S watcher.py --config FILE [--lock NUMBER]``.

PRE starts it where none runs; see :mod:`pegasus_hooks.watch`.
"""

import sys


def main(argv: list[str]) -> int:
    """Run the watcher. ``argv`` without the program's name."""
    here = __file__.rpartition("/")[0]
    sys.path.insert(0, here.rpartition("/")[0])
    from pegasus_hooks.watch import program  # noqa: PLC0415

    return program.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
