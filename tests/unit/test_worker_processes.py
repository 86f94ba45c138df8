"""Machines that are processes of this one, without any process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from condor_plugins.pool.cloud.startd import StartdCloud
from condor_plugins.pool.cloud.workerconfig import StartdSettings


def test_machines_that_have_ended_are_deleted_side_by_side(tmp_path: Path) -> None:
    cloud = StartdCloud(StartdSettings(tmp_path, "127.0.0.1:9618"))
    names = [f"m{number}" for number in range(8)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "machine.json").write_text(json.dumps({"flavour": "small", "since": 0}))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(cloud.delete, names))
    assert cloud.machines() == []
    assert (tmp_path / "last-ended/machine.json").exists()
