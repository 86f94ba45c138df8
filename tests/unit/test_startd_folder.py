"""What the driver of HTCondor's daemons clears away in a folder that may hold things of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from waiting import until

from condor_plugins.pool.cloud.startd import StartdCloud
from condor_plugins.pool.cloud.workerconfig import StartdSettings
from condor_plugins.pool.scaling import Flavour


@pytest.fixture
def cloud(tmp_path: Path) -> StartdCloud:
    master = tmp_path / "condor/sbin/condor_master"
    master.parent.mkdir(parents=True)
    master.write_text("#!/bin/sh\n")
    master.chmod(0o755)
    flavours = [Flavour("small", 1, 512)]
    return StartdCloud(StartdSettings(tmp_path / "home", "c:1", flavours, tmp_path / "condor"))


@pytest.mark.parametrize("name", ["draft", "last-ended", "thesis"])
def test_folders_of_others_stay(cloud: StartdCloud, tmp_path: Path, name: str) -> None:
    theirs = tmp_path / "home" / name / "chapter-1"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("once")
    cloud.check()
    cloud.start("small", "w1")

    def gone() -> bool:
        cloud.delete("w1")
        cloud.delete(name)
        names = [machine.name for machine in cloud.machines()]
        assert names in ([], ["w1"])
        return not names

    until(gone, "the machine's end")
    assert theirs.read_text() == "once"


def test_the_last_one_that_ended_is_kept_and_no_more(cloud: StartdCloud, tmp_path: Path) -> None:
    for name in ("w1", "w2"):
        cloud.start("small", name)
        (tmp_path / "home" / name / "mark").write_text(name)
        while cloud.machines():
            cloud.delete(name)
    assert (tmp_path / "home/last-ended/mark").read_text() == "w2"
