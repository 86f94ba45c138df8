"""The box: what is seen in it, what signals do, and that nothing is left of it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adon.machine import box, packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from network_provisioner.base.errors import MissingError

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240.0


def run_in_box(script: str) -> subprocess.CompletedProcess[str]:
    words = [*box.command(), "sh", "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@pytest.fixture
def boxes() -> None:
    reason = box.can_box()
    if reason is not None:
        pytest.skip(reason)


def test_no_network_outside_a_box(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="can only be made inside a box"):
        Network(LAYOUT, tmp_path, tmp_path).up()


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
        named = "from adon.machine import box; box.name_hosts(['10.10.0.3 dtn.adon.test'])"
        done = run_in_box(f'{sys.executable} -c "{named}" && getent hosts dtn.adon.test localhost')
        assert done.stdout.split() == ["10.10.0.3", "dtn.adon.test", "127.0.0.1", "localhost"]

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

    @pytest.mark.parametrize(
        "victim",
        ["parent", *(pytest.param(v, marks=pytest.mark.long) for v in ("init", "starter"))],
    )
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
            cwd=ROOT,
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


def machine_state() -> dict[str, object]:
    """What a testbed could leave on the machine, but for processes."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    net = Path("/proc/sys/net")
    sysctls = [net / "core/rmem_default", net / "core/wmem_default"]
    sysctls += sorted((net / "ipv4").glob("tcp_*mem"))
    sysctls += [net / "ipv4/tcp_allowed_congestion_control", net / "ipv4/ip_forward"]
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return {
        "devices": " ".join(sorted(line.split()[0] for line in links.stdout.splitlines())),
        "names": str(sorted(Path("/run").glob("netns/*"))),
        "mounts": [m for m in mounts.splitlines() if " /run" in m or " /etc" in m],
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
    pids = children(pid)
    return pids + [d for child in pids for d in descendants(child)]
