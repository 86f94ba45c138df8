"""The box, the network in it, and GridFTP over it, with the real programs.

The network belongs in a box (:mod:`adon.machine.box`), and a process is in one or it is not. So the
tests outside run this same file inside.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import Pegasus
import pytest

from adon.machine import box, packages
from examples.testbed import plan
from examples.testbed.gridftp import PORT, GridFtp, endpoints
from examples.testbed.network import LINKS, Network
from network_provisioner.errors import AdonError, MissingError

pytestmark = pytest.mark.component

HERE = Path(__file__).resolve()
PEGASUS_TRANSFER = Path(Pegasus.__path__[0]) / "cli" / "pegasus-transfer.py"
PATIENCE_S = 240.0
# HTCondor's jobs run as user 1000 of a user namespace that owns root's files.
AS_POOL_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def pytest_here(*words: str, base: Path) -> subprocess.CompletedProcess[str]:
    """Run this file's tests in another process, started by ``words``."""
    argv = [*words, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    argv += [f"--basetemp={base}", str(HERE)]
    return subprocess.run(argv, cwd=HERE.parents[2], capture_output=True, text=True, check=False)


def gridftp_programs() -> Path:
    return packages.ensure("gridftp", progress=print) / "wrap"


def pegasus_transfer(
    grid: GridFtp, where: Path, source: Path, target: Path, prefix: tuple[str, ...] = ()
) -> None:
    """One third-party transfer iplant -> mu, as Pegasus's transfer jobs do it."""
    transfer = {
        "type": "transfer",
        "linkage": "input",
        "lfn": source.name,
        "id": 1,
        "src_urls": [{"site_label": "iplant", "url": grid.url("iplant") + str(source)}],
        "dest_urls": [{"site_label": "mu", "url": grid.url("mu") + str(target)}],
    }
    transfer["src_urls"][0]["priority"] = 100
    listed = where / "transfers.in"
    listed.write_text(json.dumps([transfer]), encoding="utf-8")
    done = subprocess.run(
        [*prefix, sys.executable, str(PEGASUS_TRANSFER), "-f", str(listed), "-n", "1"],
        env={**os.environ, **grid.transfer_env()},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert target.read_bytes() == source.read_bytes()


if not box.inside():

    @pytest.fixture
    def boxes() -> None:
        reason = box.can_box()
        if reason is not None:
            pytest.skip(reason)

    @pytest.mark.root
    @pytest.mark.usefixtures("boxes")
    def test_the_network_in_a_box(tmp_path: Path) -> None:
        packages.ensure("openvswitch", progress=print)
        packages.ensure("gridftp", progress=print)
        done = pytest_here(*box.command(), base=tmp_path / "inside")
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.stdout[-8000:]

    def run_in_box(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*box.command(), "sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    @pytest.mark.root
    @pytest.mark.usefixtures("boxes")
    class TestBox:
        def test_the_exit_code_is_the_commands(self) -> None:
            assert run_in_box("exit 7").returncode == 7
            assert run_in_box("kill -KILL $$").returncode == 128 + signal.SIGKILL

        def test_a_command_that_is_not_there(self) -> None:
            words = [*box.command(), "no-such-program"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 127
            assert done.stderr == "cannot run no-such-program: No such file or directory\n"

        def test_names_are_looked_up_in_the_boxs_own_files(self) -> None:
            name = (
                "from adon.machine import box; from examples.testbed import plan; "
                "box.name_hosts(plan.hosts_lines()); box.name_hosts(plan.hosts_lines())"
            )
            shown = "getent hosts dtn.iplant.adon.test 10.254.9.2 localhost"
            done = run_in_box(f"{sys.executable} -c '{name}' && {shown}")
            assert done.stdout.split() == [
                "10.10.0.3", "dtn.iplant.adon.test", "10.254.9.2", "sw.adon.test",
                "127.0.0.1", "localhost",
            ]  # fmt: skip

        def test_only_its_own_processes_devices_and_namespaces_are_seen(self) -> None:
            script = "ip netns add adon-probe && ip netns && ls /proc | grep -cE '^[0-9]+$'"
            done = run_in_box(script + "; ip -br link | cut -d' ' -f1")
            name, processes, *devices = done.stdout.split()
            assert name == "adon-probe"
            assert int(processes) < 10
            assert devices == ["lo"]

        def test_init_reaps_orphans(self) -> None:
            # What is substituted has ended when all that it started has: they hold its pipe.
            script = """
                ended=$( (sh -c 'sleep 0.2 &') )
                while cat /proc/[0-9]*/stat 2>/dev/null | awk '$3 == "Z"' | grep -q .; do
                    sleep 0.1
                done
                """
            assert run_in_box(script).returncode == 0

        @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        def test_signals_reach_the_command_once(self, number: signal.Signals) -> None:
            script = (
                "import signal, sys, time\n"
                "got = []\n"
                f"signal.signal({int(number)}, lambda *_: got.append(1))\n"
                "print('ready', flush=True)\n"
                "while not got: time.sleep(0.05)\n"  # pause() may miss one just before it
                "time.sleep(0.2)\n"
                "print(len(got))\n"
                "sys.exit(9)\n"
            )
            words = [*box.command(), sys.executable, "-c", script]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as boxed:
                assert boxed.stdout is not None
                assert boxed.stdout.readline() == "ready\n"
                boxed.send_signal(number)
                rest = boxed.stdout.read()
            assert (boxed.returncode, rest) == (9, "1\n")

        @pytest.mark.alone  # it compares what is on the machine before and after
        @pytest.mark.parametrize("victim", ["parent", "init", "starter"])
        def test_kill_9_leaves_nothing(self, victim: str, tmp_path: Path) -> None:
            before = machine_state()
            network = [sys.executable, "-m", "examples.testbed.network", "--run-dir", str(tmp_path)]
            network += ["--bin-dir", str(packages.ensure("openvswitch", progress=print) / "wrap")]
            ready = tmp_path / "ready"
            os.mkfifo(ready)
            words = [*network, "--", "sh", "-c", f"setsid sleep 1000 & echo up > {ready}; wait"]
            starter = subprocess.Popen(
                # Not the last command: the shell has to stay, as make does.
                ["sh", "-c", '"$@"; exit $?', "sh", *words],
                cwd=HERE.parents[2],
                start_new_session=True,
            )
            assert ready.read_text(encoding="ascii") == "up\n"
            (parent,) = children(starter.pid)
            (init,) = children(parent)
            family = [parent, init, *descendants(init)]
            assert len(family) >= 7  # two switches' daemons, two links, shell, sleep
            watches = [os.pidfd_open(p) for p in family]
            doomed = {"parent": parent, "init": init, "starter": starter.pid}[victim]
            os.kill(doomed, signal.SIGKILL)
            starter.wait(PATIENCE_S)
            for watch in watches:
                assert select.select([watch], [], [], PATIENCE_S)[0]
                os.close(watch)
            assert machine_state() == before

    def machine_state() -> dict[str, str]:
        """What a testbed could leave on the machine, but for processes."""
        links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
        net = Path("/proc/sys/net")
        sysctls = [net / "core/rmem_default", net / "core/wmem_default"]
        sysctls += sorted((net / "ipv4").glob("tcp_*mem"))
        sysctls += [net / "ipv4/tcp_allowed_congestion_control", net / "ipv4/ip_forward"]
        return {
            "devices": " ".join(sorted(line.split()[0] for line in links.stdout.splitlines())),
            "names": str(sorted(Path("/run").glob("netns/*"))),
            "mounts": Path("/proc/self/mountinfo").read_text(encoding="utf-8"),
            "hosts": Path("/etc/hosts").read_text(encoding="utf-8"),
            **{str(s): s.read_text(encoding="ascii") for s in sysctls},
        }

    def children(pid: int) -> list[int]:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text(encoding="ascii").split()
        ]

    def descendants(pid: int) -> list[int]:
        found = children(pid)
        return found + [d for child in found for d in descendants(child)]

    @pytest.fixture
    def loopback(tmp_path: Path) -> Iterator[GridFtp]:
        grid = GridFtp(endpoints(), tmp_path, gridftp_programs())
        grid.start()
        yield grid
        grid.stop()

    class TestLoopback:
        def test_pegasus_transfer_between_sites(self, loopback: GridFtp, tmp_path: Path) -> None:
            source = tmp_path / "raw.fq"
            source.write_bytes(os.urandom(3_000_000))
            pegasus_transfer(loopback, tmp_path, source, tmp_path / "a" / "b" / "raw.fq")
            log, end = loopback.transfer_log("iplant"), time.monotonic() + PATIENCE_S
            while "NBYTES=3000000" not in log.read_text(encoding="utf-8"):
                assert time.monotonic() < end  # the client may be gone before the server's word
                time.sleep(0.05)

        def test_start_and_stop_twice(self, loopback: GridFtp) -> None:
            loopback.start()
            loopback.stop()
            loopback.stop()
            loopback.start()

        def test_a_port_that_is_taken(self, loopback: GridFtp, tmp_path: Path) -> None:
            second = GridFtp(loopback.sites, tmp_path / "second", gridftp_programs())
            with pytest.raises(AdonError, match="globus-gridftp-server"):
                second.start()

        def test_the_credential_is_refused_to_others(self, loopback: GridFtp) -> None:
            proxy = Path(loopback.transfer_env()["X509_USER_PROXY"])
            assert proxy.stat().st_mode & 0o777 == 0o600
            assert proxy.parent.stat().st_mode & 0o777 == 0o700

    def test_programs_that_are_not_there(tmp_path: Path) -> None:
        with pytest.raises(MissingError, match="globus-gridftp-server is not in"):
            GridFtp(endpoints(), tmp_path, tmp_path).start()

    def test_no_network_outside_a_box(tmp_path: Path) -> None:
        with pytest.raises(MissingError, match="can only be made inside a box"):
            Network(tmp_path, tmp_path).up()

    @pytest.mark.root
    @pytest.mark.usefixtures("boxes")
    @pytest.mark.skipif(os.environ.get("ADON_TEST_AS") == "nobody", reason="this is that run")
    def test_loopback_as_an_ordinary_user(tmp_path: Path) -> None:
        """The servers and pegasus-transfer as an account other than root."""
        nobody = pwd.getpwnam("nobody")
        words = ["unshare", "--user", f"--map-user={nobody.pw_uid}", "--map-group=65534"]
        done = pytest_here("env", "ADON_TEST_AS=nobody", *words, base=tmp_path / "nobody")
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.stdout[-8000:]

else:
    # What is put on the switches: every address behind its port, the other switch over a path.
    def route(network: Network, layer: str) -> None:
        for switch in plan.SWITCHES:
            network.switches.ofctl(switch, "del-flows")
            for site in plan.SITES.values():
                if site.switch == switch:
                    actions = f"set_field:{site.mac}->eth_dst,output:{site.number}"
                elif layer == "l2":
                    actions = f"output:{plan.L2_PORT}"
                else:
                    mac = plan.ROUTER_MACS[switch]
                    actions = f"set_field:{mac}->eth_dst,output:{plan.L3_PORT}"
                flow = f"priority=10,ip,nw_dst={site.address},actions={actions}"
                network.switches.ofctl(switch, "add-flow", flow)

    def carried(network: Network, link: str) -> int:
        """Bytes the link has taken in both directions."""
        return sum(d["bytes"] for d in network.link(link)["directions"])

    def at_rest(network: Network, link: str) -> int:
        """The same, once what was on its way there before is over."""
        seen, quiet, end = carried(network, link), 0, time.monotonic() + PATIENCE_S
        while quiet < 10:
            assert time.monotonic() < end
            time.sleep(0.05)
            now = carried(network, link)
            seen, quiet = now, quiet + 1 if now == seen else 0
        return seen

    def forwarded(network: Network, switch: str, address: str) -> int:
        """Bytes a switch has counted on its flow towards an address."""
        flows = network.switches.ofctl(switch, "dump-flows", f"ip,nw_dst={address}")
        return int(flows.partition("n_bytes=")[2].partition(",")[0])

    # Connects and tells the seconds it took, the shorter of two: both are one round trip.
    CONNECT = """
import socket, sys, time
took = []
for _ in range(2):
    start = time.monotonic()
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30).close()
    took.append(time.monotonic() - start)
print(min(took))
"""

    @pytest.fixture(scope="module")
    def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
        programs = packages.ensure("openvswitch", progress=print) / "wrap"
        with Network(programs, tmp_path_factory.mktemp("network")) as network:
            yield network

    @pytest.fixture(scope="module")
    def grid(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridFtp]:
        grid = GridFtp(endpoints(), tmp_path_factory.mktemp("grid"), gridftp_programs())
        with ExitStack() as stack:
            grid.start()
            stack.callback(grid.stop)
            yield grid

    def test_up_and_down_leave_the_box_as_it_was(tmp_path: Path) -> None:
        """Runs first: the other tests' network is not up yet."""
        network = Network(packages.ensure("openvswitch", progress=print) / "wrap", tmp_path)
        before = state()
        for _ in range(2):
            network.up()
            network.up()
            assert "adon-sw" in state()[1]
            network.down()
            network.down()
            reaped(before[2])
            assert state() == before

    def test_a_network_that_cannot_be_made_is_removed(tmp_path: Path) -> None:
        before = state()
        with pytest.raises(MissingError, match="ovsdb-tool is not in"):
            Network(tmp_path, tmp_path).up()
        reaped(before[2])
        assert state() == before

    def reaped(processes: int) -> None:
        """What was killed has ended; the box's init may not have buried it yet."""
        end = time.monotonic() + PATIENCE_S
        while state()[2] > processes:
            assert time.monotonic() < end, "processes are left"
            time.sleep(0.05)
        assert state()[2] == processes

    def state() -> tuple[str, str, int]:
        words = (["ip", "-br", "addr"], ["ip", "netns"])
        said = [subprocess.run(w, capture_output=True, text=True, check=True).stdout for w in words]
        processes = sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
        return said[0], said[1], processes

    def test_switches_are_numbered_and_pointed_at_the_controller(network: Network) -> None:
        for switch, dpid in plan.SWITCHES.items():
            vsctl = network.switches.vsctl
            assert vsctl("get-controller", switch).strip() == f"tcp:{plan.OPENFLOW_LISTEN}"
            assert vsctl("get-fail-mode", switch).strip() == "secure"
            shown = network.switches.ofctl(switch, "show")
            assert f"dpid:{dpid:016x}" in shown
            for link in plan.topology()["links"]:
                if switch in link["ports"]:
                    assert f"{link['ports'][switch]}({link['devices'][switch]})" in shown

    def test_secure_switches_forward_nothing_untold(network: Network) -> None:
        for switch in plan.SWITCHES:
            network.switches.ofctl(switch, "del-flows")
            assert "actions" not in network.switches.ofctl(switch, "dump-flows")

    @pytest.mark.parametrize("layer", ["l2", "l3"])
    def test_the_round_trip_is_that_of_the_wide_area(
        network: Network, grid: GridFtp, layer: str
    ) -> None:
        route(network, layer)
        words = ["ip", "netns", "exec", "adon-mu", sys.executable, "-c", CONNECT]
        end = grid.sites["iplant"]
        done = subprocess.run(
            [*words, end.address, str(end.port)], capture_output=True, text=True, check=True
        )
        # Never less than the link's delay; how much more is up to how busy this machine is.
        assert float(done.stdout) >= 2 * plan.WAN_DELAY_S

    @pytest.mark.parametrize(("layer", "prefix"), [("l2", ()), ("l3", ()), ("l2", AS_POOL_USER)])
    def test_pegasus_transfer_crosses_the_path_it_was_given(
        network: Network, grid: GridFtp, layer: str, prefix: tuple[str, ...], tmp_path: Path
    ) -> None:
        route(network, layer)
        size = 4_000_000
        source = tmp_path / "raw.fq"
        source.write_bytes(os.urandom(size))
        other = next(name for name in LINKS if name != layer)
        before, elsewhere = carried(network, layer), at_rest(network, other)
        start = time.monotonic()
        pegasus_transfer(grid, tmp_path, source, tmp_path / "mu" / "raw.fq", prefix)
        seconds = time.monotonic() - start
        assert carried(network, layer) - before >= size
        assert carried(network, other) == elsewhere
        # No faster than the link, whatever the machine does.
        assert size * 8 / seconds <= LINKS[layer][1]
        end = time.monotonic() + PATIENCE_S
        while forwarded(network, "s1", "10.10.0.1") < size and time.monotonic() < end:
            time.sleep(0.05)  # a switch's counters are a little behind
        assert forwarded(network, "s1", "10.10.0.1") >= size

    def test_a_link_is_changed_while_it_runs(network: Network) -> None:
        before = network.link("l2")
        changed = network.link("l2", rate_bps=50e6, delay_s=0.01, loss=0.5, up=False)
        assert (changed["rate_bps"], changed["delay_s"], changed["up"]) == (50e6, 0.01, False)
        network.link("l2", rate_bps=before["rate_bps"], delay_s=before["delay_s"], loss=0, up=True)
        assert network.link("l2")["rate_bps"] == plan.L2_BPS

    def test_every_packet_socket_of_the_switches_is_widened(network: Network) -> None:
        # A socket per port and switch-internal port, and the shared one for sending.
        ports = len(plan.SITES) + 4
        assert network.switches.widen_buffers("s1") > ports

    def test_stopping_ends_transfers_in_flight(network: Network, tmp_path: Path) -> None:
        route(network, "l3")
        sites = {name: replace(end, port=PORT + 1) for name, end in endpoints().items()}
        grid = GridFtp(sites, tmp_path, gridftp_programs())
        before = state()[2]
        grid.start()
        source = tmp_path / "raw.fq"
        source.write_bytes(bytes(30_000_000))
        client = subprocess.Popen(
            ["globus-url-copy", "-p", "4", *(
                f"{grid.url(site)}{tmp_path / name}"
                for site, name in (("iplant", "raw.fq"), ("mu", "copy.fq"))
            )],
            env={**os.environ, **grid.transfer_env()},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        idle = carried(network, "l3")
        end = time.monotonic() + PATIENCE_S
        while carried(network, "l3") - idle < 1_000_000 and time.monotonic() < end:
            time.sleep(0.01)
        grid.stop()
        client.kill()
        client.wait()
        reaped(before)
