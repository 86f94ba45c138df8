"""The sweep over provisioned bandwidth, as far as one point of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from demo_runs import ROOT, left_of

from adon.machine import box

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.root, pytest.mark.timeout(3600)]


def test_a_mosaic_is_made_on_disks_of_its_own(tmp_path: Path) -> None:
    if reason := box.can_box():
        pytest.skip(reason)
    words = ["--runs", "1", "--rates", "50 Mb/s", "--disk", "100 Mb/s", "--state", str(tmp_path)]
    words += ["--report", str(tmp_path / "sweep")]
    done = subprocess.run(
        [sys.executable, "-m", "examples.montage.sweep", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads((tmp_path / "sweep.json").read_text())
    assert [(run["placement"], run["state"]) for run in runs] == [
        ("default", "success"), ("isolated", "success"),
    ]  # fmt: skip
    assert all(sum(run["io_wait"]) == pytest.approx(1) for run in runs)
    assert (tmp_path / "sweep.svg").read_text().startswith("<svg")
    assert left_of(tmp_path) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
