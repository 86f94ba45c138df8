"""`adon install condor --expander` with a real condor_master, and a stand-in for the daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from adon.cli import install_expander
from adon.cli.main import main
from adon.machine.packages import ensure
from examples.testbed.pool import Pool

pytestmark = pytest.mark.component

STAND_IN = f"""#!{sys.executable}
import signal, sys

if "--version" in sys.argv:
    sys.exit(print("stand-in"))
*_, config, _, log = sys.argv
if "bad" in open(config).read():
    sys.exit("a bad adon.yml")


def say(word):
    with open(log, "a") as file:
        file.write(word + chr(10))


told = signal.SIGHUP, signal.SIGTERM
signal.pthread_sigmask(signal.SIG_BLOCK, told)
say("begun")
while signal.sigwait(told) == signal.SIGHUP:
    say("read again")
say("ended")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "config.d"
    folder.mkdir()
    for place in (folder, tmp_path, tmp_path.parent):
        place.chmod(0o755)
    return folder


@pytest.fixture
def pool(folder: Path, tmp_path: Path) -> Iterator[Pool]:
    settings = f"LOCAL_CONFIG_DIR = {folder}\n"
    condor = ensure("condor", progress=print)
    with Pool(tmp_path / "pool", condor, {}, hub_settings=settings) as pool:
        yield pool


def test_condor_master_starts_it_again_and_tells_it_to_read_and_to_end(
    pool: Pool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, config = tmp_path / "python", tmp_path / "adon.yml"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setattr(install_expander, "this_python", lambda: program)
    monkeypatch.setattr(
        "adon.cli.install_expander.daemon_user", lambda: ""
    )  # the pool is no root's
    good = "topology: {nodes: [], links: []}\nexpansion: {flavours: {w: {cores: 1}}}\n"
    config.write_text(good)
    words = ["install", "condor", "--expander", "--config-dir", str(folder), "--yes"]
    assert main([*words, "--config", str(config)]) == 0
    log = pool.run_dir / "hub/log/AdonExpanderLog"

    def told(what: str, times: int = 1) -> bool:
        return log.exists() and log.read_text().split("\n").count(what) >= times

    config.write_text(f"{good}# bad\n")
    pool.run(["condor_reconfig"])
    until(lambda: told("a bad adon.yml", 2), "it to be started again, and its words to be kept")
    config.write_text(good)
    until(lambda: told("begun"), "it to begin")
    pool.run(["condor_reconfig"])
    until(lambda: told("read again"), "it to read again")
    assert main([*words, "--undo"]) == 0
    pool.run(["condor_reconfig"])
    until(lambda: told("ended"), "it to end")
