"""Measurement tasks and the agreement as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.measurements.probes.tools import TOOLS
from monitors.measurements.task_data import (
    FOR_S,
    agreement_from_dict,
    definition_of,
    tasks_from_dict,
)
from monitors.measurements.tasks import Agreement, Task
from network_provisioner.base.errors import InputError
from network_provisioner.topology.data import topology_from_dict

NETWORK = topology_from_dict({
    "nodes": [
        {"name": "mu", "kind": "site"},
        {"name": "tacc", "kind": "site"},
        {"name": "alone", "kind": "site"},
        {"name": "s1", "kind": "switch"},
        {"name": "s2", "kind": "switch"},
        {"name": "r1", "kind": "router"},
    ],
    "links": [
        {"a": "s1", "b": "mu", "capacity": "1 Gb/s"},
        {"a": "tacc", "b": "s2", "capacity": "1 Gb/s"},
        {"a": "s1", "b": "s2", "layer": "l2", "capacity": "200 Mb/s"},
        {"a": "s1", "b": "r1", "layer": "l3", "capacity": "20 Mb/s"},
        {"a": "r1", "b": "s2", "layer": "l3", "capacity": "20 Mb/s"},
    ],
})  # fmt: skip


def task_from_dict(name: str, body: object, once: bool = False) -> Task:
    return definition_of(name, body, NETWORK, once=once).task


ROUTED = frozenset({("mu", "s1"), ("r1", "s1"), ("r1", "s2"), ("s2", "tacc")})
TCP = {"tool": "tcp", "from": "mu", "to": "tacc", "every": "1 h", "for": "20 s"}


def test_a_task_takes_the_links_of_best_effort() -> None:
    within = {**TCP, "within": "30 min"}
    assert tasks_from_dict({"t": within}, NETWORK) == {
        "t": Task("t", 3_600_000, 20_000, 1_800_000, frozenset({"mu", "tacc"}), ROUTED, 20e6)
    }
    back = task_from_dict("t", {**TCP, "from": "tacc", "to": "mu/dtn2"})
    assert (back.links, back.hosts) == (ROUTED, {"tacc", "mu/dtn2"})


def test_hosts_of_one_site_share_no_link() -> None:
    task = task_from_dict("t", {**TCP, "from": "mu/a", "to": "mu/b"})
    assert (task.hosts, task.links, task.load_bps) == ({"mu/a", "mu/b"}, frozenset(), 0.0)


def test_what_measures_a_host_conflicts_with_nothing() -> None:
    task = task_from_dict("t", {"tool": "host", "from": "mu", "every": "90 s"})
    assert task == Task("t", 90_000, 1_000, 90_000)


@pytest.mark.parametrize(
    ("more", "load_bps"),
    [
        ({}, 20e6),  # the narrowest link
        ({"options": {"rate": "5 Mb/s"}}, 5e6),
        ({"options": {"rate": "5 Gb/s"}}, 20e6),
        ({"load": "7 Mb/s"}, 7e6),
        ({"tool": "udp"}, 1e6),
        ({"tool": "echo", "options": {"interval": "10 ms", "length": 972}}, 800e3),
        ({"tool": "ping"}, 10_240.0),
        ({"tool": "trace"}, 20e3),
    ],
)
def test_the_load_of_each_tool(more: dict[str, Any], load_bps: float) -> None:
    assert task_from_dict("t", {**TCP, **more}).load_bps == pytest.approx(load_bps)


def test_every_tool_has_its_time() -> None:
    assert FOR_S.keys() == TOOLS.keys()
    assert all(FOR_S[name] >= tool.least_s for name, tool in TOOLS.items())


def test_one_run_says_nothing_of_when() -> None:
    once = {key: value for key, value in TCP.items() if key != "every"}
    assert task_from_dict("now", once, once=True).duration_ms == 20_000
    with pytest.raises(InputError, match="unknown key 'every'"):
        task_from_dict("now", TCP, once=True)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"evry": "1 h"}, "task 't' has the unknown key 'evry', did you mean 'every'?"),
        ({"tool": "tpc"}, "task 't': tool: found 'tpc', did you mean 'tcp'?"),
        (
            {"from": "taco"},
            "task 't': from is 'taco', expected a site or SITE/HOST; did you mean 'tacc'?",
        ),
        ({"from": "mu/"}, "from is 'mu/', expected a site or SITE/HOST"),
        ({"to": "mu"}, "task 't' is from 'mu' to itself, expected two ends"),
        ({"to": "alone"}, "no path joins 'mu' with 'alone'"),
        ({"to": None}, "task 't': found no 'to', expected the end that tcp measures to"),
        ({"tool": "host"}, "to: found 'tacc', but host has one end alone"),
        ({"every": "0.5 ms"}, "task 't': every: found '0.5 ms', expected whole milliseconds"),
        ({"every": 0.0015}, "expected whole milliseconds, at least one"),
        ({"for": "1 s"}, "for: found 1 s, but tcp needs 3 s at least"),
        ({"for": "2 h"}, "takes 7200 s within 3600 s every 3600 s"),
        ({"within": "2 h"}, "takes 20 s within 7200 s every 3600 s"),
        ({"options": {"stream": 4}}, "unknown option 'stream' of tcp, did you mean 'streams'?"),
        ({"load": "fast"}, "task 't': load: found 'fast'"),
    ],
)
def test_what_cannot_be_meant(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        tasks_from_dict({"t": {**TCP, **more}}, NETWORK)
    assert words in str(caught.value)


@pytest.mark.parametrize("section", [[], {"t": []}, {"": TCP}, {7: TCP}, {"t": {}}])
def test_sections_that_are_none(section: object) -> None:
    with pytest.raises(InputError):
        tasks_from_dict(section, NETWORK)


def test_a_task_says_how_often() -> None:
    with pytest.raises(InputError, match="task 't' has no 'every'"):
        task_from_dict("t", {"tool": "host", "from": "mu"})


def test_the_agreement() -> None:
    agreement = agreement_from_dict(
        {
            "links": {"mu-s1": "50 %", "s1-r1": "5 Mb/s"},
            "domains": {
                "campus": {"nodes": ["mu"], "links": ["s1-s2"], "most": "1 Gb/s", "at_once": 2},
                "wide": {"nodes": ["r1"], "at_once": 0},
            },
        },
        NETWORK,
    )
    assert agreement == Agreement(
        {("mu", "s1"): 500e6, ("r1", "s1"): 5e6},
        {
            "campus": frozenset({("mu", "s1"), ("s1", "s2")}),
            "wide": frozenset({("r1", "s1"), ("r1", "s2")}),
        },
        {"campus": 1e9},
        {"campus": 2, "wide": 0},
    )
    assert agreement_from_dict({}, NETWORK) == Agreement()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"link": {}}, "unknown key 'link', did you mean 'links'?"),
        ({"links": {"mu-s2": 1}}, "agreement: links names the link 'mu-s2', did you mean 'mu-s1'?"),
        ({"links": {"mu-s1": "120 %"}}, "links.mu-s1: found '120 %', expected 0 % to 100 %"),
        ({"links": {"mu-s1": "1 MB/s"}}, "links.mu-s1: found '1 MB/s'"),
        ({"domains": {"d": {"nodes": ["mu"]}}}, "domain 'd' bounds nothing, expected 'most' or"),
        ({"domains": {"d": {"most": 1}}}, "domain 'd' has no links, expected 'links' or 'nodes'"),
        (
            {"domains": {"d": {"nodes": ["taco"], "most": 1}}},
            "names the node 'taco', did you mean 'tacc'?",
        ),
    ],
)
def test_agreements_that_cannot_be_meant(section: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        agreement_from_dict(section, NETWORK)
    assert words in str(caught.value)


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_VALUES = _PLAIN | st.lists(_PLAIN, max_size=2) | st.dictionaries(st.text(max_size=5), _PLAIN)
_KEYS = ("tool", "from", "to", "every", "for", "within", "load", "options", "links", "domains")


@given(st.dictionaries(st.sampled_from(_KEYS), _VALUES | st.sampled_from(list(TCP.values()))))
def test_whatever_is_written_it_is_taken_or_refused(body: dict[str, Any]) -> None:
    for read in (
        lambda: task_from_dict("t", body),
        lambda: task_from_dict("t", {**TCP, **body}),
        lambda: agreement_from_dict(body, NETWORK),
        lambda: agreement_from_dict({"domains": {"d": body}}, NETWORK),
    ):
        try:
            read()
        except InputError as error:
            assert "\n" not in str(error)
