"""What agents of relays said last, and what they are told."""

from __future__ import annotations

import pytest
from broker_rig import Clock

from network_provisioner.relay.agents import RelayAgents
from network_provisioner.relay.sessions import AgentStatus, Session

SESSION = Session("t", ("10.0.0.1",), ("10.0.0.2",), True, "rb", "10.0.0.9", 27_001, "s")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def agents(clock: Clock) -> RelayAgents:
    return RelayAgents(clock)


def test_an_agent_is_ready_once_it_has_asked_and_until_it_is_silent(
    agents: RelayAgents, clock: Clock
) -> None:
    assert agents.unready("ra") == "no agent of relay 'ra' has connected yet"
    agents.heard("ra", AgentStatus())
    clock.now += 1.5
    assert agents.unready("ra") == ""
    clock.now += 0.2
    assert agents.unready("ra") == "the agent of relay 'ra' has been silent for 1.7 s"
    agents.heard("ra", AgentStatus())
    assert agents.unready("ra") == ""


def test_an_agent_whose_question_waits_is_not_silent(agents: RelayAgents, clock: Clock) -> None:
    agents.heard("ra", AgentStatus())
    with agents.waiting("ra", lambda: None):
        clock.now += 60  # in which this process did nothing
        assert agents.unready("ra") == ""
    clock.now += 1.1
    assert agents.unready("ra") == ""
    clock.now += 0.2
    assert agents.unready("ra") == "the agent of relay 'ra' has been silent for 1.6 s"


def test_what_an_agent_says_of_itself(agents: RelayAgents) -> None:
    agents.heard("ra", AgentStatus(version=2))
    assert agents.unready("ra") == "the agent of relay 'ra' is of version 2, expected 1"
    agents.heard("ra", AgentStatus())
    assert agents.unready("ra", tls=True) == "the agent of relay 'ra' has no certificate for TLS"
    agents.heard("ra", AgentStatus(tls=True))
    assert agents.unready("ra", tls=True) == ""
    agents.heard("ra", AgentStatus(unready="no TPROXY"))
    assert agents.unready("ra") == "relay 'ra': no TPROXY"
    agents.heard("ra", AgentStatus(connections={"t": 2, "u": 1}))
    agents.heard("rb", AgentStatus(connections={"t": 1}))
    assert [agents.connections(name) for name in "tuv"] == [3, 1, 0]
    assert [agents.open_at(name) for name in ("ra", "rb", "rc")] == [3, 1, 0]


def test_an_agent_that_falls_silent_has_no_connections(agents: RelayAgents, clock: Clock) -> None:
    agents.heard("ra", AgentStatus(connections={"t": 2}))
    clock.now += 1.0
    assert agents.open_at("ra") == 2
    clock.now += 0.6
    assert agents.unready("ra") and agents.open_at("ra") == 0
    agents.heard("ra", AgentStatus(connections={"t": 1}))
    assert agents.open_at("ra") == 1


def test_a_connection_that_breaks_is_known_at_once(agents: RelayAgents) -> None:
    agents.heard("ra", AgentStatus())
    agents.lost("ra")
    assert agents.unready("ra") == "the connection to the agent of relay 'ra' broke"
    agents.heard("ra", AgentStatus())
    assert agents.unready("ra") == ""


def test_a_revision_for_each_change_and_no_other(agents: RelayAgents) -> None:
    woken: list[str] = []
    first, none = agents.assigned_sessions("ra")
    assert first > 0 and none == []  # an agent that starts has revision 0
    with agents.waiting("ra", lambda: woken.append("ra")):
        for _ in range(2):
            agents.want({"ra": [SESSION]})
            assert agents.assigned_sessions("ra") == (first + 1, [SESSION])
        agents.want({"rb": [SESSION]})
    agents.want({})
    assert agents.assigned_sessions("ra") == (first + 2, []) and woken == ["ra"] * 2
    assert agents.assigned_sessions("rb")[0] == first + 2


def test_no_two_brokers_begin_with_the_same_revision() -> None:
    assert RelayAgents().assigned_sessions("ra")[0] != RelayAgents().assigned_sessions("ra")[0]
