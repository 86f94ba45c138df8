"""Runs inside a box for the bench P12: one connection over 500 Mb/s and 53 ms, in many ways.

    python -m tests.bench.relay_inside DISK MEMORY {"gridftp": …, "socat": …, "aggligator": …}

Two hosts with small windows and cubic, a relay near each. Reads lines of JSON and answers each:

- ``{"way", "loss", "bytes", "relay", …}`` with ``{"bps", "cpu_s"}`` of bytes from the server to the
  client, processor seconds of both agents. ``relay``: what differs from the rig's session, or null.
- the same with ``windows``: most bytes of a host's socket; ``disk``: GridFTP's files are on the
  disk; ``tls``: streams between relays are encrypted.
- ``{"setups": n}`` with ``{"seconds": […]}`` from connecting to the first byte of an answer, over
  the relay, and ``{"setups": n, "relay": null}`` without.
- ``{"idle": n}`` with ``{"before", "after"}``: bytes of memory of the larger agent, without and
  with so many idle connections.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "component"))
from authority import Authority
from relay_rig import AGENTS, CLIENT, GATES, SERVER, SESSION, relays, within
from waiting import until

from adon.machine import box
from examples.testbed import netns
from examples.testbed.gridftp import PORT, Endpoint, GridFtp
from examples.testbed.layout import dtn_name
from examples.testbed.procs import Daemon
from tests.bench.streams_inside import gridftp_bps

LINK = {"delay_s": 0.0265, "rate_bps": 500e6, "limit_bytes": 3_000_000, "loss": 0.0}
WINDOWS = "4096 65536 262144"
HOST = {"net.ipv4.tcp_rmem": WINDOWS, "net.ipv4.tcp_wmem": WINDOWS}
HOST_WINDOWS = tuple(HOST)
HOST |= {"net.ipv4.tcp_no_metrics_save": "1"}
GATE = "10.8.0.1"  # of the network's middle, to the hosts
WEB = f"{SERVER}:8080"
PLACES = {"http": f"http://{WEB}", "ftp": f"ftp://{SERVER}:2121"}  # where curl finds the same file
PLACES |= {"socat": f"http://{GATE}:8082", "aggligator": f"http://{GATE}:8083"}
MPTCP_PORT, MPTCP = 8081, 262
LINKS = [f"10.4.0.{n}" for n in range(1, 9)]  # addresses for the links of aggligator's tunnel
AT_ONCE = 200  # idle connections that are opened side by side


class Http(SimpleHTTPRequestHandler):
    """Any file of the machine."""

    def log_message(self, *_words: object) -> None:
        """Nothing."""


class Ftp(StreamRequestHandler):
    """As much of a server as a client needs that fetches a file."""

    def handle(self) -> None:
        """One session."""
        data = within("server", lambda: socket.create_server((SERVER, 0)))
        said = {"USER": "230 hello", "PWD": '257 "/"', "CWD": "250 done", "TYPE": "200 done"}
        said |= {"EPSV": f"229 open (|||{data.getsockname()[1]}|)", "RETR": "226 done"}
        folder = Path("/")

        def say(words: str) -> None:
            self.wfile.write(f"{words}\r\n".encode())

        say("220 ready")
        for line in self.rfile:
            word, _, rest = line.decode().strip().partition(" ")
            if word == "CWD":
                folder /= rest
            if word == "RETR":
                say("150 it comes")
                with (folder / rest).open("rb") as file, data.accept()[0] as sock:
                    sock.sendfile(file)
            say(said.get(word, "502 unknown"))
        data.close()


class Hosts:
    """The network, and what runs on its hosts."""

    def __init__(self, tools: dict[str, str], disk: Path, memory: Path, undo: ExitStack) -> None:
        self.disk, self.memory, self._undo = disk, memory, undo
        self.rig = undo.enter_context(relays(disk, LINK))
        authority = Authority(disk)
        for name in AGENTS:
            self.rig.start(name, *authority.issue(name), authority.file)
        self.rig.serve(SESSION)
        self._relayed = True
        for host, address in (("client", CLIENT), ("server", SERVER)):
            netns.sysctl(host, HOST)
            # By route: a namespace may not choose any for all that the machine keeps for root.
            netns.batch(host, [f"route replace default via {GATE} src {address} congctl cubic"])
        self._serve(8080, partial(Http, directory="/"))
        self._serve(2121, Ftp)
        self._mptcp = within("server", lambda: socket.socket(type=socket.SOCK_STREAM, proto=MPTCP))
        self._mptcp.bind((SERVER, MPTCP_PORT))
        self._mptcp.listen()
        self._run("near", tools["socat"], "TCP-LISTEN:8082,fork,reuseaddr", f"TCP:{WEB}")
        if "aggligator" in tools:
            self._tunnel(tools["aggligator"])
        ends = {"src": ("server", SERVER), "dst": ("client", CLIENT)}
        box.name_hosts([f"{address} {dtn_name(name)}" for name, (_, address) in ends.items()])
        places = {
            name: Endpoint(dtn_name(name), at, PORT, host) for name, (host, at) in ends.items()
        }
        self._gridftp = GridFtp(places, disk, Path(tools["gridftp"]))
        self._gridftp.start()
        undo.callback(self._gridftp.stop)

    def _serve(self, port: int, handler: Callable[..., StreamRequestHandler]) -> None:
        server = within("server", lambda: ThreadingTCPServer((SERVER, port), handler))
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _run(self, name: str, *words: str) -> None:
        log = self.disk / f"{Path(words[0]).name}-{name}.log"
        self._undo.callback(Daemon([*netns.execute(name), *words], log).stop)

    def _tunnel(self, program: str) -> None:
        """One of eight links with cubic: its client makes one to each address of its server."""
        netns.batch("far", [
            *(f"addr add {address}/32 dev wan" for address in LINKS),
            f"route replace {GATES['near']} dev wan src {LINKS[0]} congctl cubic",
        ])  # fmt: skip
        netns.batch("near", [f"route add 10.4.0.0/24 via {GATES['far']} congctl cubic"])
        self._run("far", program, "server", "-n", "--tcp", "5800", "-p", f"{WEB}:8080")
        links = [word for address in LINKS for word in ("--tcp", address)]
        way = ["--tcp-link-filter", "interface-ip", "-p", "8080:8083"]
        self._run("near", program, "client", "-n", "-4", "-g", *links, *way)

    def measure(self, request: dict[str, Any]) -> dict[str, float]:
        """One transfer as asked."""
        until(self.rig.idle, "the last connection to end")
        self.rig.change_link(loss=request["loss"])
        relay = request["relay"]
        if (relay is not None) != self._relayed:
            self._relayed = relay is not None
            self.rig.redirect(self._relayed)
        if relay is not None:
            # Of a name of its own: listeners keep what they were set up with.
            self.rig.serve(replace(SESSION, id=json.dumps(relay), **relay))
        if "windows" in request:
            for host in ("client", "server"):
                windows = f"4096 65536 {request['windows']}"
                netns.sysctl(host, dict.fromkeys(HOST_WINDOWS, windows))
        before = self._cpu_s()
        size, streams, way = request["bytes"], request.get("streams", 1), request["way"]
        if way == "mptcp":
            bps = self._by_mptcp(size)
        elif way == "gridftp":
            folder = self._on_disk(size) if request.get("disk") else self.memory
            bps = gridftp_bps(self._gridftp, folder, size, streams, request["buffer_bytes"])
        elif way == "disk":
            bps = self._to_disk(size)
        else:
            (self.memory / "source").touch()
            os.truncate(self.memory / "source", size)
            bps = 8 * size / self._fetched(PLACES[way], self.memory / "source", "/dev/null")
        return {"bps": bps, "cpu_s": self._cpu_s() - before}

    def _cpu_s(self) -> float:
        times = [psutil.Process(agent.pid).cpu_times() for agent in self.rig.agents.values()]
        return sum(cpu.user + cpu.system for cpu in times)

    def _fetched(self, place: str, source: Path, target: str) -> float:
        """The seconds that curl takes."""
        words = ["curl", "-sS", "-o", target, "-w", "%{time_total} %{size_download}"]
        call = [*netns.execute("client"), *words, f"{place}{source}"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        seconds, came = done.stdout.split()
        assert int(came) == source.stat().st_size, came
        return float(seconds)

    def _on_disk(self, size: int) -> Path:
        """The disk's folder, with a source that has to be read from it."""
        source = self.disk / "source"
        source.write_bytes(os.urandom(size))
        with source.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return self.disk

    def _to_disk(self, size: int) -> float:
        """By curl from the disk, until all is on the disk."""
        source, target = self._on_disk(size) / "source", self.disk / "target"
        began = time.monotonic()
        self._fetched(PLACES["http"], source, str(target))
        with target.open("rb") as file:
            os.fsync(file.fileno())
        return 8 * size / (time.monotonic() - began)

    def _by_mptcp(self, size: int) -> float:
        """By plain sockets."""
        began = time.monotonic()
        with within("client", lambda: socket.socket(type=socket.SOCK_STREAM, proto=MPTCP)) as sock:
            sock.connect((SERVER, MPTCP_PORT))
            sender = threading.Thread(target=self._send, args=(size,))
            sender.start()
            came = 0
            while data := sock.recv(1 << 20):
                came += len(data)
            sender.join()
        assert came == size, came
        return 8 * size / (time.monotonic() - began)

    def _send(self, size: int) -> None:
        with self._mptcp.accept()[0] as sock:
            sock.sendall(bytes(size))

    def idle(self, n: int) -> dict[str, int]:
        """What idle connections take."""
        before = self._memory()
        with ExitStack() as opened, self.rig.listen(9000) as listener:
            for _ in range(n // AT_ONCE):
                for _ in range(AT_ONCE):
                    opened.enter_context(self.rig.connect(9000))
                for _ in range(AT_ONCE):
                    opened.enter_context(listener.accept()[0])
            return {"before": before, "after": self._memory()}

    def setups(self, number: int, relayed: bool) -> dict[str, list[float]]:
        """From connecting to the answer's first byte, of one connection after the other."""
        until(self.rig.idle, "the last connection to end")
        if relayed != self._relayed:
            self._relayed = relayed
            self.rig.redirect(relayed)
        seconds = []
        with self.rig.listen(9001) as listener:
            for _ in range(number):
                began = time.perf_counter()
                with self.rig.connect(9001) as client:
                    client.sendall(b"?")
                    with listener.accept()[0] as server:
                        server.recv(1)
                        server.sendall(b"!")
                        client.recv(1)
                        seconds.append(time.perf_counter() - began)
                until(self.rig.idle, "the connection to end")
        return {"seconds": seconds}

    def _memory(self) -> int:
        agents = self.rig.agents.values()
        return max(psutil.Process(agent.pid).memory_info().rss for agent in agents)


def main(disk: Path, memory: Path, tools: dict[str, str]) -> None:
    """One answer for each line."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as undo:
        hosts = Hosts(tools, disk, memory, undo)
        for line in sys.stdin:
            request = json.loads(line)
            result: dict[str, Any]
            if "idle" in request:
                result = hosts.idle(request["idle"])
            elif "setups" in request:
                result = hosts.setups(request["setups"], request.get("relay", True) is not None)
            else:
                result = hosts.measure(request)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
