"""adon on a head node whose clock is wrong; HTCondor's and the cloud's are right.

    python wrong_clock.py SECONDS adon's words...

The clock is so many seconds ahead of the others.
"""

from __future__ import annotations

import sys
import time

from adon.cli.main import main
from condor_plugins.pool.cloud import startd

if __name__ == "__main__":
    ahead_s, right = float(sys.argv[1]), time.time
    startd.StartdCloud.__init__.__defaults__ = (right,)  # type: ignore[misc]
    time.time = lambda: right() + ahead_s
    sys.exit(main(sys.argv[2:]))
