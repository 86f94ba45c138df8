"""Agents as processes, on machines with a real line between them: every tool, and every death.

The network belongs in a box (:mod:`adon.machine.box`), and a process is in one or it is not. So the
tests outside run this same file inside.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from authority import Authority
from waiting import until

from adon.machine import box, packages
from examples.testbed import netns
from examples.testbed.procs import Daemon
from monitors.measurements.agent.messages import Assignment
from monitors.measurements.probes import ping
from monitors.measurements.probes.probe import ProbeRequest
from monitors.measurements.probes.tools import TOOLS
from network_provisioner.api.connection import server_context
from network_provisioner.base.errors import AdonError
from tests.agents_broker import FakeBroker
from tests.agents_world import ADDRESS, DELAY_S, HUB, RATE_BPS, ROUTE, A, B, World, adon_argv

# Outside, one test is all that is quick, and one is the rest.
pytestmark = [pytest.mark.component, pytest.mark.root, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
TOKENS = {"mu": "the-token-of-mu-is-long", "tacc": "the-token-of-tacc-is-long"}
MACHINE = {"mu": A, "tacc": B}
PORT = 5204
SOON_S = 4.0
LONG_S = 200.0  # a run may begin a tenth of its time late: of these none is too late
PATIENCE_S = 240.0  # nothing here takes nearly as long


if not box.inside():

    def test_inside_a_box(tmp_path: Path) -> None:
        run_inside(tmp_path, "not long")

    @pytest.mark.long
    def test_rates_delays_and_deaths_inside_a_box(tmp_path: Path) -> None:
        run_inside(tmp_path, "long")

    def run_inside(tmp_path: Path, marked: str) -> None:
        reason = box.can_box()
        if reason is not None:
            pytest.skip(reason)
        # Downloads need the host's network, so before the box is made.
        programs = packages.ensure("iperf3", progress=print) / "wrap"
        words = [*box.command(), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        words += [f"--basetemp={tmp_path / 'inside'}", "-m", marked, str(Path(__file__).resolve())]
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.stdout[-8000:]

else:

    class Agents:
        """Two agents and their broker, which this process is."""

        def __init__(self, world: World, folder: Path) -> None:
            self.world, self.folder = world, folder
            self.authority = Authority(folder)
            self.broker = FakeBroker(TOKENS, self.tls(), host="0.0.0.0")
            self.daemons: dict[str, Daemon] = {}
            for name in TOKENS:
                self.configure(name)

        def tls(self) -> ssl.SSLContext:
            hosts = [*HUB.values()]
            context = server_context(*self.authority.issue("broker", hosts=hosts), None)
            context.load_verify_locations(self.authority.file)
            context.verify_mode = ssl.CERT_OPTIONAL  # tacc shows one, mu has its token alone
            return context

        def configure(self, name: str, **more: Any) -> None:
            (self.folder / f"{name}.token").write_text(TOKENS[name])
            settings: dict[str, Any] = {
                "name": name,
                "broker": f"https://{HUB[MACHINE[name]]}:{self.broker.port}",
                "token_file": f"{name}.token",
                "ca": self.authority.file,
                "state": f"{name}.state",
                "address": ADDRESS[MACHINE[name]],
                "clock_error": "1 ms",  # it is one machine with one clock
                "limits": {"peers": ["10.78.0.0/16"], "rate": "1 Gb/s"},
                "commands": {
                    "seven": {"argv": ["sh", "-c", "echo 7"], "unit": "ms"},
                    "stray": {"argv": ["sh", "-c", "setsid sleep 987 & sleep 986"]},
                },
                **more,
            }
            if name == "tacc":
                certificate, key = self.authority.issue("tacc")
                settings |= {"certificate": certificate, "key": key}
            (self.folder / f"{name}.yml").write_text(yaml.safe_dump(settings))

        def start(self, *names: str) -> None:
            for name in names or TOKENS:
                before = len(self.broker.desks[name].asked)
                words = [*adon_argv(), "agent", "run", "--config", str(self.folder / f"{name}.yml")]
                daemon = self.world.start(MACHINE[name], words, self.log(name))
                self.daemons[name] = daemon
                # The second time it waits for what is new.
                while len(self.broker.desks[name].asked) < before + 2:
                    daemon.check()
                    time.sleep(0.02)

        def log(self, name: str) -> Path:
            return self.folder / f"{name}.log"

        def pair(self, tool: str, duration_s: float, **options: Any) -> str:
            """Have mu measure towards tacc, soon; the id."""
            at = self.broker.clock() + SOON_S
            key = f"{tool}-{at}"
            if tool == "echo":
                options["key"] = os.urandom(16).hex()
            for name, other, role in (("tacc", "mu", "server"), ("mu", "tacc", "client")):
                self.broker.tell(
                    name,
                    Assignment(
                        key, tool, tool, role, "mu>tacc", at, duration_s,
                        ADDRESS[MACHINE[other]], PORT, options,
                    ),  # type: ignore[arg-type]
                )  # fmt: skip
            return key

        def alone(self, tool: str, duration_s: float, peer: str = "", **options: Any) -> str:
            """Have mu measure alone, soon; the id."""
            at = self.broker.clock() + SOON_S
            subject = "mu>tacc" if peer else "mu"
            key = f"{tool}-{at}"
            self.broker.tell(
                "mu",
                Assignment(key, tool, tool, "alone", subject, at, duration_s, peer, 0, options),
            )
            return key

        def begun(self, key: str, begins: Callable[[], bool], *names: str) -> str:
            """The same id as soon as its run has begun."""
            desks = [self.broker.desks[name] for name in names]
            until(lambda: begins() or any(key in desk.results for desk in desks))
            early = [desk.results[key] for desk in desks if key in desk.results]
            assert not early, early
            return key

        def measured(self, key: str) -> dict[str, dict[str, Any]]:
            """What mu measured, by metric."""
            (result,) = self.broker.wait("mu", key, timeout_s=PATIENCE_S)
            assert not result["error"], result["error"]
            return {m["metric"]: m for m in result["measurements"]}

        def error(self, name: str, key: str) -> str:
            (result,) = self.broker.wait(name, key, timeout_s=PATIENCE_S)
            assert result["measurements"] in ([], ())
            return str(result["error"])

        def flowing(self) -> str:
            """Have mu fill the line for long; the id, once it does."""
            before = self.carried()
            key = self.pair("tcp", LONG_S)
            return self.begun(key, lambda: self.carried() > before + 1e6, "mu", "tacc")

        def strays(self, key: str) -> str:
            """The id of mu's command whose processes stray, once they are there."""
            return self.begun(key, lambda: len(running("986", "987")) == 2, "mu")

        def carried(self) -> int:
            """Bytes that the line has taken."""
            return sum(way["bytes"] for way in self.world.line()["directions"])

        def stop(self) -> None:
            for daemon in self.daemons.values():
                daemon.stop()
            self.broker.stop()

    @pytest.fixture(scope="module")
    def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
        with World(tmp_path_factory.mktemp("world")) as made:
            yield made

    @pytest.fixture
    def agents(world: World, tmp_path: Path) -> Iterator[Agents]:
        world.line(rate_bps=RATE_BPS, delay_s=DELAY_S, loss=0.0, up=True)
        made = Agents(world, tmp_path)
        yield made
        made.stop()
        for name in TOKENS:
            if made.log(name).exists():
                print(made.log(name).read_text())

    def processes() -> Iterator[tuple[int, str, list[str]]]:
        """Those of this box: number, program, command line."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with suppress(OSError):
                    line = (folder / "cmdline").read_text(errors="replace")
                    yield int(folder.name), (folder / "comm").read_text(), line.split("\0")

    def running(*words: str) -> list[int]:
        """The processes with one of these words in their command lines."""
        return [number for number, _, line in processes() if set(words) & set(line)]

    def iperf3s(option: str = "") -> list[int]:
        """The processes of iperf3 with this option."""
        lines = [(number, line) for number, program, line in processes() if program == "iperf3\n"]
        return [number for number, line in lines if not option or option in line]

    # -- what is measured --------------------------------------------------------------------

    def test_both_ends_measure(agents: Agents) -> None:
        agents.start()
        tcp = agents.pair("tcp", LONG_S, seconds=3)
        trace = agents.alone("trace", LONG_S, ADDRESS[B], wait=10.0, attempts=5)
        results = agents.measured(tcp)["tcp_throughput"]
        assert 0 < results["value"] <= 1.02 * RATE_BPS
        assert (results["subject"], results["source"]) == ("mu>tacc", "agent:mu")
        assert agents.measured(trace)["hops"]["value"] == len(ROUTE)
        # The agent with a certificate never sent its token, the other always did.
        assert set(agents.broker.desks["tacc"].authorized) == {None}
        assert set(agents.broker.desks["mu"].authorized) == {f"Bearer {TOKENS['mu']}"}

    @pytest.mark.long
    def test_throughput_of_tcp(agents: Agents) -> None:
        agents.start()
        key = agents.pair("tcp", LONG_S, streams=2, seconds=5)
        results = agents.measured(key)["tcp_throughput"]
        assert 0.4 * RATE_BPS < results["value"] <= 1.02 * RATE_BPS
        assert results["details"]["streams"] == 2

    @pytest.mark.long
    def test_udp_on_a_line_that_loses_a_tenth(agents: Agents) -> None:
        agents.world.line(loss=0.1)
        agents.start()
        results = agents.measured(agents.pair("udp", LONG_S, rate=4e6, length=1000, seconds=12))
        assert results["loss"]["value"] == pytest.approx(0.1, abs=0.04)
        assert results["udp_throughput"]["value"] == pytest.approx(3.6e6, rel=0.1)
        assert results["jitter"]["value"] < DELAY_S

    @pytest.mark.long
    def test_delays_of_a_line_that_loses_a_tenth(agents: Agents) -> None:
        agents.world.line(loss=0.1)
        agents.start()
        results = agents.measured(agents.pair("echo", LONG_S, interval=0.01, count=600))
        assert results["loss"]["value"] == pytest.approx(0.1, abs=0.05)
        assert results["loss"]["details"]["direction"] == "one way"
        assert 2 * DELAY_S <= results["rtt"]["value"] < 3 * DELAY_S
        assert DELAY_S <= results["one_way_delay"]["value"] < 1.5 * DELAY_S
        assert results["one_way_delay"]["details"]["error_s"] == pytest.approx(0.002)
        assert "jitter" in results

    @pytest.mark.long
    def test_the_route_ping_host_and_command(agents: Agents) -> None:
        agents.start("mu")
        there = ADDRESS[B]
        route = agents.alone("trace", LONG_S, there, wait=10.0, attempts=5)
        ping = agents.alone("ping", LONG_S, there, count=20)
        host = agents.alone("host", 20.0)
        seven = agents.alone("command", LONG_S, command="seven")
        hops = agents.measured(route)["hops"]
        assert tuple(hop["address"] for hop in hops["details"]["route"]) == ROUTE
        answered = agents.measured(ping)
        assert 2 * DELAY_S <= answered["rtt"]["value"] < 3 * DELAY_S
        assert answered["loss"]["value"] == 0
        assert answered["rtt"]["details"]["count"] == 20
        busy = agents.measured(host)
        assert {"cpu_use", "memory_use", "io_wait"} == set(busy)
        assert all(0 <= m["value"] <= 1 for m in busy.values())
        assert agents.measured(seven)["custom:seven"]["value"] == 7

    @pytest.mark.long
    def test_a_line_that_is_down(agents: Agents) -> None:
        agents.start()
        agents.world.line(up=False)
        tcp = agents.pair("tcp", 20.0)
        said = agents.error("mu", tcp)  # the second where it began a little late
        assert "iperf3" in said or "no time is left" in said
        assert agents.error("tacc", tcp) == f"nobody came to port {PORT}"
        lost = agents.measured(agents.alone("ping", 20.0, ADDRESS[B]))["loss"]
        assert lost["value"] == 1

    @pytest.mark.long
    def test_ping_and_trace_without_privileges(world: World) -> None:
        world.line(rate_bps=RATE_BPS, delay_s=DELAY_S, loss=0.0, up=True)
        bare = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
        netns.sysctl(A, {"net.ipv4.ping_group_range": "0 0"})
        words = ("agent", "probe", "ping", "--peer", ADDRESS[B], "--for", "4s", "--json")
        by_socket = {f["metric"]: f for f in json.loads(world.adon(A, *words, under=bare))}
        netns.sysctl(A, {"net.ipv4.ping_group_range": "1 0"})
        assert by_socket["loss"]["value"] == 0
        assert 2 * DELAY_S <= by_socket["rtt"]["value"] < 3 * DELAY_S
        tracing = ("agent", "probe", "trace", "--peer", ADDRESS[B], "--set", "wait=10s", "--json")
        (trace,) = json.loads(world.adon(A, *tracing, under=bare))
        assert [hop["address"] for hop in trace["details"]["route"]] == list(ROUTE)
        # Neither is allowed now, and the private copy of ping has no privileges either.
        with pytest.raises(AdonError, match="exit code 1"):
            world.adon(A, *words, under=bare)

    def test_the_program_ping(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        def none(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(ping.socket, "socket", none)
        options = TOOLS["ping"].checked({"count": 5})
        results = ping.measure(
            ProbeRequest("ping", "alone", time.monotonic() + PATIENCE_S, "127.0.0.1", 0, options)
        )
        assert {f.metric: f.value for f in results}["loss"] == 0
        assert dict(results[1].details)["count"] == 5

    # -- what dies ---------------------------------------------------------------------------

    @pytest.mark.long
    def test_a_killed_iperf3_is_told_and_the_next_run_is_as_good(agents: Agents) -> None:
        agents.start()
        key = agents.flowing()
        os.kill(iperf3s("-c")[0], signal.SIGKILL)
        assert agents.error("mu", key) == "iperf3 was ended by signal 9"
        assert "iperf3" in agents.error("tacc", key)
        again = agents.measured(agents.pair("tcp", LONG_S, seconds=3))
        assert again["tcp_throughput"]["value"] > 0

    def test_a_killed_agent_leaves_nothing_running_and_tells_when_it_is_back(
        agents: Agents,
    ) -> None:
        agents.start()
        stray, key = agents.alone("command", LONG_S, command="stray"), agents.flowing()
        agents.strays(stray)
        os.kill(agents.daemons["mu"].pid, signal.SIGKILL)
        assert "iperf3" in agents.error("tacc", key)  # in words of its own
        until(lambda: not running("986", "987") and not iperf3s())
        agents.daemons["mu"].stop()
        agents.start("mu")
        assert agents.error("mu", key) == "the agent was killed while it measured"
        assert agents.error("mu", stray) == "the agent was killed while it measured"
        assert {key, stray} <= set(agents.broker.desks["mu"].times)
        assert set(agents.broker.desks["mu"].times.values()) == {1}
