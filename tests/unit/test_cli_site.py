"""``adon site``: whom it asks, what it draws, and edge optimisation, from the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_world import (
    CONFIG,
    NOBODY,
    Ran,
    adon,
    changed,
    config_file,
    refusal,
    values_of,
    write_world,
)
from network_world import RELAYED

from adon.planning import holdings
from condor_plugins.pool.sitepool import SitePool
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.client.broker import BrokerClient
from network_provisioner.state.ledger import Ledger
from network_provisioner.state.load import describe_load
from network_provisioner.topology.data import topology_from_dict


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path)


def lines(ran: Ran) -> list[str]:
    assert ran.code == 0, ran
    return [" ".join(line.split()) for line in ran.out.splitlines()]


# ------------------------------------------------------------------- show, explain


def test_show_needs_no_workflow(workflow: Path) -> None:
    rows = lines(adon("site", "show", "--sites", "sites.yml"))
    assert "mu N 4 catalog" in rows
    assert "T_q 60 s catalog" in rows
    assert not any("align" in line for line in rows)
    as_json = json.loads(adon("site", "show", "--sites", "sites.yml", "--json").out)
    assert as_json["compute"] == {} and set(as_json["sites"]) == {"local", "mu", "tacc"}
    assert refusal("site", "show") == (
        "found neither a workflow nor --sites, expected one of them to show"
    )
    assert refusal("site", "show", "--sites", "none.yml").startswith("none.yml: ")


def test_the_plot_is_a_drawing_of_the_mapping(workflow: Path) -> None:
    ran = adon("site", "explain", workflow, "--plot", "gantt.html", "--json")
    assert ran.code == 0
    (gantt,) = values_of(Path("gantt.html"))["gantt"]
    tips = [bar["tip"] for _, bars in gantt["groups"] for bar in bars]
    for placement in json.loads(ran.out):
        assert any(t.startswith(f"{placement['job']} ") for t in tips)
        assert all(
            {"winner", "what", "of", "now"} <= set(flip) for flip in placement["would_change"]
        )
    assert "none/gantt.html" in refusal("site", "explain", workflow, "--plot", "none/gantt.html")


def test_an_unknown_job_is_told_before_anything_is_drawn(workflow: Path) -> None:
    assert "job 'ID9' is not in workflow" in refusal(
        "site", "explain", workflow, "--job", "ID9", "--plot", "gantt.html"
    )
    assert not Path("gantt.html").exists()


# ------------------------------------------------------------------- whom it asks


def test_who_does_not_answer_is_told_in_one_line_and_the_catalogs_are_used(
    workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(collector: str) -> dict[str, SitePool]:
        raise AdonError(f"HTCondor at {collector} did not answer: no route")

    monkeypatch.setattr(holdings, "ask_pool", silent)
    ran = adon(
        "site", "show", "--sites", "sites.yml", "--pool", "cm:9618", "--broker", f"http://{NOBODY}"
    )
    assert "mu N 4 catalog" in lines(ran)
    first, second = ran.err.splitlines()
    assert first == (
        "adon: HTCondor at cm:9618 did not answer: no route; "
        "the archive and the catalogs are used instead"
    )
    assert second.startswith(f"adon: the broker at http://{NOBODY} cannot be reached: ")


def test_the_pool_is_asked_when_told_or_when_adon_yml_has_one(
    workflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collectors = []

    def answer(collector: str) -> dict[str, SitePool]:
        collectors.append(collector)
        return {"mu": SitePool("mu", 0.0, 7, idle_slots=7, ahead=0.0)}

    monkeypatch.setattr(holdings, "ask_pool", answer)
    rows = lines(adon("site", "show", "--sites", "sites.yml", "--pool"))
    assert any(line.startswith("mu N 7 collector") for line in rows)
    assert any(line.startswith("T_q never collector") for line in rows)  # tacc is not in it
    adon("site", "map", workflow, "--config", config_file(tmp_path))
    adon("site", "map", workflow, "--config", config_file(tmp_path, pool={}))
    adon("site", "map", workflow, "--config", config_file(tmp_path, pool={"collector": "cm:9618"}))
    file = config_file(tmp_path, pool={"collector": "cm:9618"})
    adon("site", "map", workflow, "--config", file, "--pool", "other")
    assert collectors == ["", "", "cm:9618", "other"]


def test_cores_that_wait_for_disks_are_told(
    workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = {"mu": SitePool("mu", 0.0, 8, idle_slots=3, ahead=0.0, stalled=2.5)}
    monkeypatch.setattr(holdings, "ask_pool", lambda _collector: pool)
    rows = lines(adon("site", "explain", workflow, "--sites", "sites.yml", "--pool"))
    assert "N 3 [collector " in " ".join(rows)
    assert "of 6, less 5 jobs that run; of 8 slots, 2 wait for disks (I/O wait)]" in " ".join(rows)


def test_a_real_process_that_cannot_reach_a_collector_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holdings, "_POOL_TIMEOUT_S", 600.0)  # it starts late on a busy machine
    with pytest.raises(AdonError, match=rf"^HTCondor at {NOBODY} did not answer: ") as refused:
        holdings.ask_pool(NOBODY)
    assert "\n" not in str(refused.value) and "Traceback" not in str(refused.value)


def test_a_pool_whose_slots_name_no_site_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, "{}", "")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(AdonError, match="HTCondor has no slot that names its site"):
        holdings.ask_pool("")


def test_a_pool_that_takes_too_long_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(words, 15.0)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(AdonError, match="HTCondor at cm did not answer within 15 s"):
        holdings.ask_pool("cm")


@pytest.mark.parametrize("words", [["workflow.yml"], ["a b"], ["http://cm"]])
def test_what_is_no_collector_is_refused(workflow: Path, words: list[str]) -> None:
    assert "expected a collector" in refusal("site", "map", workflow, "--pool", *words)


def test_adon_yml_tells_the_network_and_a_resting_broker_is_no_news(
    workflow: Path, tmp_path: Path
) -> None:
    ran = adon("site", "show", "--sites", "sites.yml", "--config", config_file(tmp_path))
    assert ran.err == ""
    assert any("Γ_a 200 Mb/s topology" in line and "mu-s1-s2-tacc" in line for line in lines(ran))


@pytest.mark.parametrize("section", [CONFIG["topology"], RELAYED.topology()])
def test_the_broker_tells_the_network_and_what_is_reserved(section: dict[str, Any]) -> None:
    topology = topology_from_dict(section)
    network, used = holdings.network_from_broker(describe_load(topology, Ledger.of(topology), 0.0))
    assert [(n.name, n.kind) for n in network.nodes.values()] == [
        (n.name, n.kind) for n in topology.nodes.values()
    ]
    for path in topology.candidate_paths("mu", "tacc"):
        assert network.path(path.nodes) == path
    assert set(used.values()) == {0.0} and used["s1", "s2"] == 0


def test_an_answer_that_is_no_topology_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerClient, "topology", lambda _: {"links": [{"a": 1}]})
    with pytest.raises(BrokerError, match="sent an answer that is not a topology"):
        holdings.ask_network(BrokerClient(f"http://{NOBODY}"))


def test_capacity_minus_what_is_reserved(monkeypatch: pytest.MonkeyPatch, workflow: Path) -> None:
    topology = topology_from_dict(CONFIG["topology"])
    used = {("s1", "s2"): 150e6}
    monkeypatch.setattr(holdings, "ask_network", lambda broker: (topology, used))
    rows = lines(adon("site", "show", "--sites", "sites.yml", "--broker"))
    (line,) = [row for row in rows if row.startswith("mu>tacc")]
    assert line.startswith("mu>tacc Γ_a 50 Mb/s topology")
    assert line.endswith("mu-s1-s2-tacc minus what is reserved now (broker)")


def test_the_pool_section_is_checked(tmp_path: Path, workflow: Path) -> None:
    bad = changed(CONFIG, "pool", to={"colector": "x"})
    file = tmp_path / "adon.yml"
    file.write_text(json.dumps(bad))
    assert "pool has the unknown key 'colector', did you mean 'collector'?" in refusal(
        "site", "map", workflow, "--config", file
    )


def test_where_no_site_has_workers_all_is_told_and_drawn(workflow: Path) -> None:
    sites = json.loads(Path("sites.yml").read_text())
    for site in sites["sites"]:
        site["profiles"]["pegasus"]["adon.workers"] = 0
    Path("sites.yml").write_text(json.dumps(sites))
    ran = adon("site", "explain", workflow, "--plot", "g.html")
    assert ran.code == 0
    assert "no site has resources now" in ran.out and "never" in ran.out
    assert values_of(Path("g.html"))["gantt"][0]["groups"] == []
    assert adon("site", "edge", workflow).code == 1
    for placement in json.loads(adon("site", "explain", workflow, "--json").out):
        assert all(a["t_q_s"] is None for a in placement["alternatives"])
