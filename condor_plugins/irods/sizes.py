"""How large data objects are: ``python -I -m condor_plugins.irods.sizes FOLDER URL…``.

A line of JSON for each that its zone reports, as soon as it does: URL and bytes. ``FOLDER`` is the
job's, see :mod:`condor_plugins.irods.account`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from irods.session import iRODSSession

from condor_plugins.irods import account


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's text. What cannot be asked for has no line."""
    folder, *urls = sys.argv[1:] if argv is None else argv
    sessions: dict[account.IrodsUrl, iRODSSession] = {}
    for url in urls:
        try:
            known = account.parsed(url)
            if known.place not in sessions:
                sessions[known.place] = account.session(known, os.environ, Path(folder))
            size = sessions[known.place].data_objects.get(known.path).size
        except Exception:  # its errors have no common root
            continue
        print(json.dumps([url, size]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
