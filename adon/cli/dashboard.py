"""``adon dashboard``: what the demo measured."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from adon.cli.parsing import Noun, option
from network_provisioner.base.daemon_log import log_to
from network_provisioner.base.errors import InputError

NOUN = Noun("dashboard")


@NOUN.command(
    option("--demo", "the demo's state", "DIR", Path, default=Path(".adon")),
    option("--listen", "where to serve", "HOST:PORT", default="127.0.0.1:8470"),
)
def _run(args: argparse.Namespace) -> int:
    """Show the demo's measurements in the dashboard, without a network.

    Serves copies of the demo's archive and state until Ctrl-C or SIGTERM. Your own broker serves
    its dashboard at its own address.

    Examples:
      make demo && adon dashboard
      adon dashboard --demo /tmp/try/.adon --listen 127.0.0.1:9000
    """
    from adon.config.sections import split_address
    from adon.service.serve import serve

    split_address(args.listen, "--listen")
    log_to(level="warning")

    def say(words: str) -> None:
        if f"://{args.listen}" in words:  # it listens
            print(f"dashboard: http://{args.listen}/ (Ctrl-C ends it)", flush=True)

    with tempfile.TemporaryDirectory(prefix="adon-dashboard-") as folder:
        config = _copied(args.demo, args.listen, Path(folder))
        return serve(config, say=say)


def _copied(demo: Path, listen: str, folder: Path) -> Path:
    """An adon.yml for a broker on copies of what the demo left. Raises InputError."""
    import yaml

    from adon.config.yamlfile import read_yaml

    archive, run_dir = demo / "archive.sqlite", demo / "testbed"
    left = run_dir / "adon.yml"
    if not (archive.exists() and left.exists()):
        raise InputError(
            f"{demo}: found no state of a demo, expected what 'make demo' leaves there"
        )
    config: Any = read_yaml(left)
    copies = {"archive": archive, "state": run_dir / "broker.sqlite"}
    for source in copies.values():
        if source.exists():
            _copy(source, folder / source.name)
    config["controller"] = {"driver": "simulated"}
    config["broker"] = {
        "listen": listen,
        **{name: str(folder / source.name) for name, source in copies.items()},
    }
    file = folder / "adon.yml"
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return file


def _copy(source: Path, target: Path) -> None:
    """Copy a database that may be in use. Raises InputError."""
    import sqlite3

    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
    except sqlite3.Error as error:
        raise InputError(f"{source}: cannot be read: {error}, expected what a demo left") from None
