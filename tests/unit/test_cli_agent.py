"""``adon agent``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_world import refusal
from waiting import until

from adon.cli.main import main
from monitors.measurements.agent.messages import Assignment
from tests.agents_broker import FakeBroker

ADON = (sys.executable, "-c", "from adon.cli.main import main; raise SystemExit(main())")
TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tpc"], "TOOL: found 'tpc', did you mean 'tcp'?"),
        (["command"], "run the program itself"),
        (["ping"], "--peer: found nothing, expected the address of ping's other end"),
        (["ping", "--peer", "tacc"], "--peer: found 'tacc', expected an IP address"),
        (["echo", "--peer", "::1", "--bind", "x"], "--bind: found 'x', expected an IP address"),
        (["host", "--serve"], "--serve: found it with host, which needs no server"),
        (
            ["echo", "--peer", "::1", "--port", "0"],
            "--port: found '0', expected a whole number from 1",
        ),
        (["echo", "--peer", "::1", "--set", "count"], "expected OPTION=VALUE"),
        (["echo", "--peer", "::1", "--set", "cont=5"], "did you mean 'count'?"),
        (["host", "--for", "soon"], "--for: found 'soon'"),
    ],
)
def test_probes_that_cannot_be(words: list[str], said: str) -> None:
    assert said in refusal("agent", "probe", *words)


def test_a_probe_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "probe", "host", "--for", "0.3 s", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [f["metric"] for f in facts] == ["cpu_use", "memory_use", "io_wait"]
    assert main(["agent", "probe", "trace", "--peer", "127.0.0.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["hops", "1"]
    assert lines[1].split()[:2] == ["1", "127.0.0.1"]


def test_a_probe_that_measures_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["agent", "probe", "echo", "--peer", "127.0.0.1", "--port", "1", "--for", "1 s"]
    assert main(words) == 1
    assert "127.0.0.1 port 1 does not answer" in capsys.readouterr().err


def test_a_configuration_that_is_not_there_or_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = tmp_path / "none.yml"
    assert main(["agent", "run", "--config", str(none)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"adon: {none}: found no such file: ") and said.count("none.yml") == 1
    (tmp_path / "agent.yml").write_text(f"name: mu\nbrokr: x\ntoken: {TOKEN}\n")
    assert main(["agent", "run", "--config", str(tmp_path / "agent.yml")]) == 2
    said = capsys.readouterr().err
    assert "agent.yml: agent has the unknown key 'brokr', did you mean 'broker'?" in said
    assert TOKEN not in said


def measured_in_time(broker: FakeBroker) -> dict[str, Any]:
    """What the agent measures. An instant that a busy machine was too late for is followed by one
    that is further off."""
    broker.wait_asked("mu", 2)  # it is there, and waits
    results = broker.desks["mu"].results
    for number in range(6):
        at = broker.clock() + 2.0**number
        broker.tell("mu", Assignment(f"a{number}", "a", "host", "alone", "mu", at, 0.5))
        until(lambda key=f"a{number}", at=at: key in results or broker.clock() > at + 5.0)
        if complete := [result for result in results.values() if result["measurements"]]:
            return complete[0]
    raise AssertionError(f"measured nothing: {results}")


def test_an_agent_from_start_to_stop(tmp_path: Path) -> None:
    broker = FakeBroker({"mu": TOKEN})
    config = {"name": "mu", "broker": broker.url, "token": TOKEN, "state": "state"}
    (tmp_path / "agent.yml").write_text(yaml.safe_dump(config))
    argv = [*ADON, "agent", "run", "--config", str(tmp_path / "agent.yml")]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as agent:
        try:
            result = measured_in_time(broker)
            agent.send_signal(signal.SIGTERM)
            said = agent.communicate(timeout=60)[0]
        finally:
            agent.kill()
            broker.stop()
    assert agent.returncode == 0
    assert [m["metric"] for m in result["measurements"]] == ["cpu_use", "memory_use", "io_wait"]
    assert said.startswith("agent mu: ")
    assert f"asks {broker.url}\n" in said
