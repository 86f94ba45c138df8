"""GridFTP servers, and a transfer between two of them as Pegasus's transfer jobs do it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import Pegasus

from adon.machine import packages
from examples.testbed.gridftp import GridFtp

PEGASUS_TRANSFER = Path(Pegasus.__path__[0]) / "cli" / "pegasus-transfer.py"
PATIENCE_S = 240.0


def gridftp_programs() -> Path:
    return packages.ensure("gridftp", progress=print) / "wrap"


def pegasus_transfer(
    grid: GridFtp, where: Path, source: Path, target: Path, prefix: tuple[str, ...] = ()
) -> None:
    """One third-party transfer iplant -> mu, as Pegasus's transfer jobs do it."""
    transfer = {
        "type": "transfer",
        "linkage": "input",
        "lfn": source.name,
        "id": 1,
        "src_urls": [{"site_label": "iplant", "url": grid.url("iplant") + str(source)}],
        "dest_urls": [{"site_label": "mu", "url": grid.url("mu") + str(target)}],
    }
    transfer["src_urls"][0]["priority"] = 100
    listed = where / "transfers.in"
    listed.write_text(json.dumps([transfer]), encoding="utf-8")
    done = subprocess.run(
        [*prefix, sys.executable, str(PEGASUS_TRANSFER), "-f", str(listed), "-n", "1"],
        env={**os.environ, **grid.transfer_env()},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert target.read_bytes() == source.read_bytes()
