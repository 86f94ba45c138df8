"""``adon site edge`` from the command line, and the file of holdings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_world import CONFIG, adon, config_file, refusal, write_world
from hypothesis import given
from hypothesis import strategies as st

from adon.planning import holdings
from adon.planning.holdings import Holdings, Waiting, holdings_dict, parse_holdings
from adon.planning.placement import place
from condor_plugins.pool.sitepool import SitePool
from network_provisioner.base.errors import InputError
from network_provisioner.topology.data import topology_from_dict
from site_selector.estimates.running import Holding, Live, bandwidth_of, workers_of
from site_selector.inputs import load_inputs
from site_selector.mapping.placement import Mapping as SiteMapping


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path)


def test_a_workflow_gets_its_resources_and_the_next_finds_less(
    workflow: Path, tmp_path: Path
) -> None:
    command = ("site", "edge", workflow, "--local", "mu", "--remote", "tacc", "--json")
    first = adon(*command, "--workers", 3, "--save", "held.yml")
    assert first.code == 0
    resources = json.loads(first.out)["taken"]
    assert (resources["site"], resources["local"], resources["workers"]) == ("mu", True, 3)
    state = yaml.safe_load(Path("held.yml").read_text())
    assert state["running"][0]["workers"] == {"mu": 3}
    again = adon(*command, "--workers", 3, "--holdings", "held.yml", "--application", "two")
    assert json.loads(again.out)["taken"]["site"] == "tacc"


def test_where_nothing_fits_it_waits_with_the_reason(workflow: Path) -> None:
    Path("held.yml").write_text(
        "running:\n- {application: big, priority: 9, workers: {mu: 4, tacc: 8}}\n"
        "waiting:\n- {application: early, priority: 5}\n- {application: late, priority: 4}\n"
    )
    options = ("--holdings", "held.yml", "--save", "held.yml", "--priority", 5)
    ran = adon("site", "edge", workflow, *options)
    assert ran.code == 1
    assert "local at mu lacks workers at mu: 1 needed, 0 of 4 free, held by big" in ran.out
    assert "waits in the scheduler's queue (place 2): no application of lower priority" in ran.out
    state = yaml.safe_load(Path("held.yml").read_text())
    assert [w["application"] for w in state["waiting"]] == ["early", "small", "late"]


def test_who_could_give_way_is_named(workflow: Path, tmp_path: Path) -> None:
    Path("held.yml").write_text(
        "running:\n- {application: neuro, priority: 3, workers: {mu: 4}, layer: l2,\n"
        "   bandwidth: {'mu>tacc': 198 Mb/s}}\n"
    )
    command = ("site", "edge", workflow, "--local", "mu", "--remote", "tacc", "--output-site", "mu")
    command += ("--holdings", "held.yml", "--config", config_file(tmp_path))
    ran = adon(*command, "--priority", 5)
    assert ran.code == 1
    assert "it would fit without neuro (priority 3) in layer 2" in ran.out
    ran = adon(*command, "--priority", 2)
    assert "no application of lower priority" in ran.out


def test_what_others_hold_is_taken_off_where_a_workflow_is_planned(
    workflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sites(*words: object) -> set[str]:
        mapped = adon("site", "map", workflow, "--json", *words)
        return {placement["site"] for placement in json.loads(mapped.out)["placements"]}

    assert sites() == {"mu"}
    running = "running:\n- {application: big, workers: {mu: 4}}\n"
    Path("held.yml").write_text(running)
    assert sites("--holdings", "held.yml") == {"tacc"}
    # So does a plan with an adon.yml that names the file; what is wrong with it is told.
    four = {"mu": SitePool("mu", 0.0, 4, 4, ahead=0.0), "tacc": SitePool("tacc", 0.0, 8, 8)}
    monkeypatch.setattr(holdings, "ask_pool", lambda _: four)
    config = config_file(tmp_path, pool={"holdings": "held.yml"})
    assert sites("--config", config) == {"tacc"}
    Path("held.yml").write_text(running.replace("mu", "muu"))
    ran = adon("site", "map", workflow, "--config", config)
    assert (ran.code, "workers at 'muu', expected one of" in ran.err) == (0, True)
    Path("held.yml").write_text(f"{running}- {{application: large, workers: {{tacc: 8}}}}\n")
    planned = adon("site", "explain", workflow, "--holdings", "held.yml")
    why = "waits in the scheduler's queue: workers at tacc: 1 needed, 0 of 8 free, held by large"
    why_mu = why.replace("tacc", "mu").replace("8 free", "4 free").replace("large", "big")
    assert why in planned.out or why_mu in planned.out
    mapped = adon("site", "map", workflow, "--holdings", "held.yml")
    assert "2 jobs wait in the scheduler's queue: workers at " in mapped.out
    submitted = adon("plan", workflow, "--holdings", "held.yml", "--dir", "submit")
    assert "2 jobs wait in the scheduler's queue: workers at " in submitted.out
    file = next(tmp_path.rglob("adon-placements.json"))
    queued = {placement["queued"] for placement in json.loads(file.read_text())["placements"]}
    assert len(queued) == 1 and queued.pop().startswith("workers at ")


def test_a_workflow_is_planned_around_jobs_that_keep_the_near_site_busy(workflow: Path) -> None:
    inputs = load_inputs(workflow)

    def placed(idle: int) -> SiteMapping:
        ahead = 0.0 if idle else 9.0
        near = SitePool("mu", 1000.0, 4, idle, ahead=ahead, run_s=600.0)
        pool = {"mu": near, "tacc": SitePool("tacc", 1000.0, 8, 8, ahead=0.0)}
        return place(inputs, output_site="local", live=Live(pool), now=1000.0).mapping

    assert [set(placed(idle).sites.values()) for idle in (4, 0)] == [{"mu"}, {"tacc"}]
    assert placed(0).queued == []


def test_a_path_of_which_nothing_is_left_is_named(workflow: Path) -> None:
    Path("held.yml").write_text(
        "running:\n- {application: big, bandwidth: {mu>tacc: 1 Gb/s, mu>local: 1 Gb/s, "
        "tacc>local: 1 Gb/s}}\n"
    )
    mapped = adon("site", "map", workflow, "--holdings", "held.yml")
    assert "1 job waits in the scheduler's queue: bandwidth mu>local: nothing is left" in mapped.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--local", "muu"], "site 'muu' is not in the site catalog"),
        (["--local", "mu", "--remote", "mu"], "'mu' is given as local and as remote"),
        (
            ["--template", "defualt"],
            "template 'defualt' is none of default, did you mean",
        ),
        (["--workers", "0"], "expected a whole number from 1"),
        (["--holdings", "none.yml"], "none.yml"),
        (["--holdings", "sites.yml"], "sites.yml: holdings"),
    ],
)
def test_edge_refuses_what_it_cannot_use(workflow: Path, words: list[str], said: str) -> None:
    assert said in refusal("site", "edge", workflow, *words)


def test_a_running_application_is_not_started_again(workflow: Path) -> None:
    Path("held.yml").write_text("running:\n- {application: small, workers: {mu: 1}}\n")
    assert "application 'small' runs already" in refusal(
        "site", "edge", workflow, "--holdings", "held.yml"
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "expected a mapping"),
        ({"runing": []}, "unknown key 'runing'"),
        ({"running": [{}]}, "no 'application'"),
        ({"running": [{"application": "a", "workers": {"xx": 1}}]}, "workers at 'xx'"),
        ({"running": [{"application": "a", "workers": {"mu": -1}}]}, "a whole number"),
        ({"running": [{"application": "a", "layer": "l9"}]}, "layer is 'l9'"),
        ({"running": [{"application": "a", "bandwidth": {"mu": 1}}]}, "SITE>SITE"),
        ({"running": [{"application": "a", "bandwidth": {"mu>tacc": "1 MB/s"}}]}, "bits per"),
        ({"running": [{"application": "a", "priority": "high"}]}, "priority"),
        ({"running": [{"application": "a"}, {"application": "a"}]}, "listed twice"),
        ({"waiting": [{"application": "a", "since": 3}]}, "unknown key 'since'"),
    ],
)
def test_bad_holdings_are_one_line(data: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        parse_holdings(data, ["mu", "tacc"], None)
    assert "\n" not in str(refused.value)


names = st.text("abc", min_size=1, max_size=4)


@given(
    st.dictionaries(names, st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 10**9))),
    st.dictionaries(names, st.integers(0, 9)),
)
def test_holdings_survive_their_file(
    running: dict[str, tuple[int, int, int]], waiting: dict[str, int]
) -> None:
    holdings = Holdings(
        tuple(
            Holding(name, {workers_of("mu"): float(n), bandwidth_of("mu", "tacc"): float(bps)}, p)
            for name, (p, n, bps) in running.items()
        )
    )
    for name, priority in waiting.items():
        if name not in running:
            holdings = holdings.with_waiting(Waiting(name, priority))
    text = yaml.safe_dump(holdings_dict(holdings))
    assert parse_holdings(yaml.safe_load(text), ["mu", "tacc"], None) == holdings


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["running", "waiting", "application", "priority", "workers", "bandwidth", "layer",
                 "mu", "mu>tacc", "l2"]
            ) | scalars,
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(anything | st.fixed_dictionaries({"running": st.lists(
    st.fixed_dictionaries({"application": names}, optional={
        "workers": anything, "bandwidth": anything, "layer": anything, "priority": anything,
    }), max_size=2)}))  # fmt: skip
def test_holdings_of_any_shape_are_read_or_refused_in_one_line(data: Any) -> None:
    for topology in (None, topology_from_dict(CONFIG["topology"])):
        try:
            assert isinstance(parse_holdings(data, ["mu", "tacc"], topology), Holdings)
        except InputError as error:
            assert "\n" not in str(error)
