"""What ``adon doctor --fix`` mends: what is wrong with the broker's files, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from adon.config.sections import Config
from network_provisioner.base.database_url import is_database_url

_OPEN = 0o077


def repair(config: Config, owner: int = -1) -> Iterator[str]:
    """Make the folders of state and archive that are missing, for user id ``owner``, and close both
    files to others, where they are ours; a line for each. Raises OSError."""
    places = (config.broker.state, config.broker.archive)
    for path in dict.fromkeys(Path(place) for place in places if not is_database_url(place)):
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
            os.chown(path.parent, owner, -1)
            yield f"made the folder {path.parent}"
        if not path.exists():
            continue
        status = path.stat()
        if status.st_mode & _OPEN and os.geteuid() in (0, status.st_uid):
            path.chmod(status.st_mode & 0o700)
            yield f"closed {path} to others"
