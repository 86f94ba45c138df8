"""The alerting rules are of metrics that there are, and the runbook has every alarm."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from api_rig import bearer
from broker_rig import Rig
from cli_world import adon
from fastapi.testclient import TestClient
from monitoring_rig import monitored

from network_provisioner.base.controller import SwitchStatus

RUNBOOK = Path(__file__).resolve().parents[2] / "docs/runbook.md"


def test_alarms_are_of_our_metrics_and_in_the_runbook(tmp_path: Path) -> None:
    (group,) = yaml.safe_load(adon("broker", "alerts").out)["groups"]
    rig = Rig(tmp_path / "s")
    rig.controller.statuses = [SwitchStatus("s1", "switch s1", True, 0.0, "", {"rule": 1})]
    with monitored(tmp_path, rig) as (app, _), TestClient(app) as web:
        text = web.get("/metrics", headers=bearer("operator")).text
    exported = set(re.findall(r"^# TYPE (adon_\w+) ", text, re.M))
    for rule in group["rules"]:
        assert exported.issuperset(re.findall(r"adon_\w+", rule["expr"])), rule["alert"]
        labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        metric = re.search(r"adon_\w+", rule["expr"])
        if metric and re.search(rf"^{metric[0]}[{{ ]", text, re.M):  # else nothing has reported
            assert all(re.search(rf"^{metric[0]}{{.*{x}=", text, re.M) for x in labels)
    listed = re.findall(r"^\| `(Adon\w+)` \|", RUNBOOK.read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(rule["alert"] for rule in group["rules"])
