"""POST of the provisioning jobs: ``python -I -S succeed.py JOB.out``.

It succeeds whatever the job's result, and leaves a ``JOB.meta`` as Pegasus's own POST does of a
job that wrote no files: HTCondor sends it to the jobs after this one, and holds them where there is
none.
"""

import contextlib
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Run POST. ``argv`` ends with the job's output file."""
    with contextlib.suppress(OSError, IndexError):
        Path(argv[-1]).with_suffix(".meta").write_text("[]\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
