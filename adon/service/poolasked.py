"""``python -m adon.service.poolasked [HOST:PORT]``: tells the pool's size for every line on its
standard input, and ends with it.

An answer is one line: the sites as JSON, or ``!`` and why there is none.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from condor_plugins.collector import HTCondorPool
from condor_plugins.pool.sitepool import SitePool, summarise
from network_provisioner.base.errors import AdonError


def size_now(pool: HTCondorPool) -> dict[str, SitePool]:
    """Slots and jobs by site. No history, which takes long to read and says nothing of size.
    Raises AdonError if no slot or no job can be asked for."""
    return summarise(pool.slots(), pool.jobs(), time.time())


def main(words: Sequence[str]) -> int:
    """Answer until there are no more questions."""
    pool = HTCondorPool(*words[:1])
    for _ in sys.stdin:
        try:
            sites = {site: state.as_dict() for site, state in size_now(pool).items()}
            print(json.dumps(sites), flush=True)
        except AdonError as error:
            print("!" + " ".join(str(error).split()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
