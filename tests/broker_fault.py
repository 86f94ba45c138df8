"""The broker's own program with a wall clock that tests can set.

    python broker_fault.py CLOCK ADON_YML

CLOCK is a file with the seconds that the wall clock is ahead; it is read at every look at the time.
"""

import os
import sys
import time
from pathlib import Path

REAL = time.time


def main() -> int:
    """Until it is told to stop."""
    file = os.open(sys.argv[1], os.O_RDONLY)
    time.time = lambda: REAL() + float(os.pread(file, 32, 0) or 0)
    from adon.service.serve import serve  # noqa: PLC0415  -- after the clock is in place

    return serve(Path(sys.argv[2]), say=lambda line: print(line, flush=True))


if __name__ == "__main__":
    sys.exit(main())
