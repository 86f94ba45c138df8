"""Follows workflows into an archive, by hand and without the rest of ADON:

python -m monitors.follow.command --archive archive.sqlite SUBMIT_DIR…
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from monitors.archive import Archive
from monitors.follow.follower import Follower
from monitors.logs.submit_dir import SubmitDir
from monitors.status import State, Status, status_text
from network_provisioner.errors import AdonError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 where all workflows were done, 1 where one was not, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m monitors.follow.command", description=__doc__)
    parser.add_argument("--archive", required=True, help="SQLite file, made where it is not there")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    parser.add_argument("submit_dir", nargs="+")
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s")

    def show(submit_dir: SubmitDir, status: Status) -> None:
        print(status_text(status, submit_dir.name), flush=True)

    try:
        with Archive(options.archive) as archive:
            on_status = None if options.quiet else show
            last = Follower(options.submit_dir, archive, on_status=on_status).run()
    except AdonError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 1
    return 0 if all(s is not None and s.state is State.DONE for s in last.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
