"""A private Open vSwitch: its own database, sockets and namespace, userspace datapath.

The userspace datapath needs no kernel module. It receives through one packet socket per port and
sends through one that all ports share; both get the machine's default buffer (212 kB), which loses
packets silently under many streams. Raising the default is a change to the whole machine, so the
buffers of exactly these sockets are raised instead, through duplicates of their descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from adon.machine import syscalls
from examples.testbed.netns import execute
from examples.testbed.procs import run, stop_pid
from network_provisioner.base.errors import AdonError, MissingError

PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl")
_SCHEMA = "usr/share/openvswitch/vswitch.ovsschema"
_BUFFER_BYTES = 32 << 20
_MAX_BACKOFF_MS = 1000
# A controller that has ended is noticed at once, its socket being on this machine; one that says
# nothing for 5 s, which is the default, only waits for a processor.
_INACTIVITY_MS = 60_000
_COUNTERS_MS = 100
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
# An Ethernet frame of an experimental type (IEEE 802, 0x88b5) to everyone, 60 bytes.
_FRAME = "ffffffffffff02000000ffff88b5".ljust(120, "0")


class Switches:
    """One ovsdb-server and one ovs-vswitchd with any number of bridges."""

    def __init__(self, bin_dir: Path, run_dir: Path, log_dir: Path, netns: str) -> None:
        """``bin_dir`` holds the programs, ``run_dir`` gets database and sockets."""
        self._bin = bin_dir
        self._dir = run_dir
        self._logs = log_dir
        self._netns = netns
        self._database = f"unix:{run_dir / 'db.sock'}"

    def start(self) -> None:
        """Start database and switch. Raises MissingError, AdonError."""
        for program in PROGRAMS:
            if not (self._bin / program).exists():
                raise MissingError(
                    f"{program} is not in {self._bin} (Debian package openvswitch-switch)"
                )
        self._logs.mkdir(parents=True, exist_ok=True)
        self._dir.mkdir(parents=True, exist_ok=True)
        for stale in self._dir.glob("*"):
            if stale.suffix in (".db", ".sock", ".pid", ".ctl", ".mgmt", ".snoop"):
                stale.unlink()
        database = self._dir / "conf.db"
        self._run("ovsdb-tool", "create", str(database), str(self._schema()))
        self._daemon(
            "ovsdb-server", str(database), f"--remote=punix:{self._dir / 'db.sock'}", "ovsdb"
        )
        # TSO lets 64 kB of TCP pass as one frame: without it Python's links are the bottleneck.
        # Flow counters are as old as the last revalidation, and they are read when transfers end.
        self.vsctl(
            "--no-wait", "init", "--", "set", "Open_vSwitch", ".",
            "other_config:userspace-tso-enable=true",
            f"other_config:max-revalidator={_COUNTERS_MS}",
        )  # fmt: skip
        self.start_switch()

    def start_switch(self) -> None:
        """Start ovs-vswitchd, as after its death. Raises AdonError."""
        self._daemon("ovs-vswitchd", self._database, None, "vswitchd")

    @property
    def pid(self) -> int:
        """Of ovs-vswitchd."""
        return self._pid("vswitchd")

    def add_bridge(self, name: str, dpid: int, ports: Mapping[int, str], controller: str) -> None:
        """Make a bridge with these port numbers and devices, and point it at its controller.

        ``controller`` is an OVS target such as ``tcp:10.254.9.1:6653``. It is set before any flow:
        setting a first controller flushes them.
        """
        arguments = ["add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"]
        arguments += ["protocols=OpenFlow13", "fail-mode=secure"]
        arguments += [f"other-config:datapath-id={dpid:016x}"]
        arguments += ["--", "set-controller", name, controller]
        arguments += ["--", "set", "controller", name, f"max_backoff={_MAX_BACKOFF_MS}"]
        arguments += [f"inactivity_probe={_INACTIVITY_MS}", "connection-mode=out-of-band"]
        for number, device in ports.items():
            arguments += ["--", "add-port", name, device]
            arguments += ["--", "set", "interface", device, f"ofport_request={number}"]
        self.vsctl(*arguments)
        for number, device in ports.items():
            values = self.vsctl("get", "interface", device, "ofport", "error").split("\n")
            if values[0] != str(number):
                raise AdonError(
                    f"switch {name}: device {device} is port {values[0]}, expected {number}: "
                    f"{values[1]}"
                )

    def widen_buffers(self, bridge: str) -> int:
        """Raise the buffers of the switch's packet sockets; returns how many there are.

        ``bridge`` is asked to send one frame first, since the shared sending socket is made then.
        Raises AdonError.
        """
        self.ofctl(bridge, "packet-out", f"in_port=controller,packet={_FRAME},actions=output:1")
        pid = self.pid
        pidfd = os.pidfd_open(pid)
        try:
            return sum(_widen(pidfd, fd) for fd in _sockets(pid))
        except OSError as err:
            raise AdonError(f"cannot widen the buffers of ovs-vswitchd: {err.strerror}") from err
        finally:
            os.close(pidfd)

    def vsctl(self, *words: str) -> str:
        """ovs-vsctl; returns its output. Raises AdonError."""
        return self._run("ovs-vsctl", f"--db={self._database}", "--timeout=45", *words)

    def ofctl(self, bridge: str, command: str, *words: str) -> str:
        """ovs-ofctl over the bridge's management socket; returns its output. Raises AdonError."""
        target = f"unix:{self._dir / f'{bridge}.mgmt'}"
        return self._run("ovs-ofctl", "-O", "OpenFlow13", command, target, *words)

    def stop(self) -> None:
        """End both daemons; nothing happens where they do not run."""
        for name in ("vswitchd", "ovsdb"):
            with contextlib.suppress(FileNotFoundError):
                stop_pid(self._pid(name))
            (self._dir / f"{name}.pid").unlink(missing_ok=True)

    def _schema(self) -> Path:
        for base in (self._bin.parent / "root", Path("/")):
            if (base / _SCHEMA).exists():
                return base / _SCHEMA
        raise MissingError(f"{_SCHEMA} not found (Debian package openvswitch-common)")

    def _daemon(self, program: str, first: str, remote: str | None, name: str) -> None:
        """Start a daemon; ``--detach`` returns when it serves."""
        command = [first, *([remote] if remote else []), f"--pidfile={self._dir / f'{name}.pid'}"]
        command += [f"--unixctl={self._dir / f'{name}.ctl'}", "--detach", "--no-chdir"]
        command += [f"--log-file={self._logs / f'{name}.log'}", "-vconsole:emer"]
        self._run(program, *command, prefix=execute(self._netns))

    def _pid(self, name: str) -> int:
        return int((self._dir / f"{name}.pid").read_text(encoding="ascii"))

    def _run(self, program: str, *words: str, prefix: list[str] | None = None) -> str:
        directory = str(self._dir)
        env = os.environ | {f"OVS_{k}DIR": directory for k in ("RUN", "LOG", "DB", "SYSCONF")}
        return run([*(prefix or []), str(self._bin / program), *words], env=env)


def _sockets(pid: int) -> list[int]:
    pids = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(entry.readlink()).startswith("socket:"):
                pids.append(int(entry.name))
    return pids


def _widen(pidfd: int, fd: int) -> bool:
    try:
        copy = syscalls.pidfd_getfd(pidfd, fd)
    except OSError as err:
        if err.errno == errno.EBADF:
            return False  # closed since it was listed, as management connections are
        raise
    with socket.socket(fileno=copy) as sock:
        if sock.family != socket.AF_PACKET:
            return False
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
        return True
