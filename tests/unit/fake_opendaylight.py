"""An OpenDaylight with switches and no packets, over real HTTP, as the real one was seen to answer.

It shares no code with what it tests: flows are kept as they came, and leave again with the texts
for 64 bit numbers and the empty fields left out that the real one has.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from examples.testbed.ports import free_port

Json = dict[str, Any]
_FLOW = re.compile(
    r"/data/opendaylight-inventory:nodes/node=openflow:(\d+)/flow-node-inventory:table=0"
    r"(?:/flow=([^/]+))?"
)
_NODE = re.compile(r"\[opendaylight-inventory:id='openflow:(\d+)'\]")
_MISSING = {"error-tag": "data-missing", "error-message": "Data does not exist"}


@dataclass
class Entry:
    """A flow in a switch."""

    flow: Json
    since: float
    bytes: int = 0

    def ended(self, now: float) -> bool:
        lease = int(self.flow.get("hard-timeout", 0))
        return bool(lease) and now - self.since >= lease


@dataclass
class FakeNode:
    """A switch, where it is connected, and what OpenDaylight was told to keep on it."""

    ports: list[int]
    clock: Callable[[], float] = time.time
    table: dict[tuple[int, str], Entry] = field(default_factory=dict)
    groups: dict[int, Json] = field(default_factory=dict)
    config: dict[str, Json] = field(default_factory=dict)
    connection: int = 50000
    connected: bool = True
    ready: bool = True
    # The words of the switch's refusal of anything new, "" where it refuses nothing.
    refusal: str = ""
    # Says yes to everything and does nothing.
    lazy: bool = False
    down: set[int] = field(default_factory=set)  # ports without a link
    closed: set[int] = field(default_factory=set)  # ports that are set to drop what is sent there
    # Takes nothing that is configured.
    deaf: bool = False
    changes: int = 0


class FakeOpenDaylight:
    """Serves on a port of 127.0.0.1 until it is closed.

    ``wrong`` takes over an answer where it is set: given verb and path it returns status, content
    type and body, or None for the usual one. While ``silent`` is set, nobody is answered.
    """

    def __init__(
        self,
        nodes: dict[int, list[int]],
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tls = tls
        self.nodes = {dpid: FakeNode(list(ports), clock) for dpid, ports in nodes.items()}
        self.lock = threading.RLock()
        self.asked: list[tuple[str, str]] = []
        self.wrong: Callable[[str, str], tuple[int, str, bytes] | None] | None = None
        # What its frames have found, while a rule gives them back.
        self.links: list[tuple[str, str]] = []
        # Where packets that are sent out of a port come in.
        self.wires: dict[str, str] = {}
        self.silent = threading.Event()
        # Answers begin, and go on and on.
        self.dripping = threading.Event()
        self._closed = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        # Not one that the kernel gives to who connects: it would not be free to come back to.
        self.port = free_port()
        self.up()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def up(self) -> None:
        """Serve, at the same port as before."""
        self._closed.clear()
        server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        server.daemon_threads = True
        if self._tls is not None:
            server.socket = self._tls.wrap_socket(server.socket, server_side=True)
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Stop to serve."""
        self._closed.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def restart(self, dpid: int) -> None:
        """The switch loses its rules and connects again; OpenDaylight lays what is configured."""
        with self.lock:
            node = self.nodes[dpid]
            node.table.clear()
            node.groups.clear()
            node.connection += 1
            for flow in node.config.values():
                _lay(node, flow)

    def owners(self, dpid: int) -> list[int]:
        """The owners of the rules in a switch that packets meet, sorted."""
        with self.lock:
            _expire(self.nodes[dpid])
            flows = [entry.flow for entry in self.nodes[dpid].table.values()]
            return sorted(int(flow["cookie"]) >> 48 for flow in flows if not _is_stamp(flow))

    # --- what it answers ----------------------------------------------------------------------

    def wait_while_silent(self) -> None:
        while self.silent.is_set() and not self._closed.is_set():
            self._closed.wait(0.02)

    def drip(self) -> Iterator[bytes]:
        """Something that is always nearly JSON."""
        while self.dripping.is_set() and not self._closed.wait(0.05):
            yield b" "

    def authorised(self, header: str | None) -> bool:
        return header == f"Basic {base64.b64encode(b'admin:admin').decode()}"

    def answer(self, verb: str, path: str, body: Json | None) -> tuple[int, Json | None]:
        where, _, query = path.partition("?")
        with self.lock:
            self.asked.append((verb, path))
            for node in self.nodes.values():
                _expire(node)
            if where == "/data/opendaylight-inventory:nodes":
                return 200, self._inventory()
            if where.startswith("/data/network-topology:network-topology"):
                return 200, {"network-topology:topology": [self._found()]}
            match = _FLOW.fullmatch(where)
            if match:
                return self._config(verb, int(match[1]), match[2], body, query)
            if where.startswith("/operations/") and body is not None:
                return self._operate(where.removeprefix("/operations/"), body["input"])
        return 400, _errors({"error-tag": "unknown-element", "error-message": f"no {where}"})

    def _found(self) -> Json:
        """Links, by the rule that gives the frames back at both ends."""
        giving = {
            f"openflow:{dpid}"
            for dpid, node in self.nodes.items()
            if any('"type": 35020' in match for _, match in node.table)
        }
        listed = [
            {"source": {"source-tp": a}, "destination": {"dest-tp": b}}
            for a, b in self.links
            if {a.rpartition(":")[0], b.rpartition(":")[0]} <= giving or "host" in a
        ]
        return {"link": listed} if listed else {}

    def _inventory(self) -> Json:
        listed = [
            {
                "id": f"openflow:{dpid}",
                "flow-node-inventory:ip-address": "127.0.0.1",
                "flow-node-inventory:port-number": node.connection,
                "node-connector": [_connector(dpid, port, node) for port in [*node.ports, "LOCAL"]],
            }
            for dpid, node in self.nodes.items()
            if node.connected
        ]
        return {"opendaylight-inventory:nodes": {"node": listed} if listed else {}}

    def _config(
        self, verb: str, dpid: int, name: str | None, body: Json | None, query: str
    ) -> tuple[int, Json | None]:
        node = self.nodes[dpid]
        if name is None:
            assert (verb, query) == ("GET", "content=config")
            if not node.config:
                return 409, _errors(_MISSING)
            flows = [_printed(flow) for flow in node.config.values()]
            return 200, {"flow-node-inventory:table": [{"id": 0, "flow": flows}]}
        if verb == "PUT":
            assert body is not None
            (flow,) = body["flow-node-inventory:flow"]
            assert flow["id"] == name
            status = 204 if name in node.config else 201
            node.config[name] = flow
            if node.connected and not node.deaf:
                _lay(node, flow)
            return status, None
        assert verb == "DELETE"
        if name not in node.config:
            return 409, _errors(_MISSING)
        flow = node.config.pop(name)
        if node.connected and not node.lazy:
            node.table.pop(_key(flow), None)
        return 204, None

    def _operate(self, name: str, given: Json) -> tuple[int, Json | None]:
        match = _NODE.search(given["node"])
        node = self.nodes.get(int(match[1])) if match else None
        module, _, operation = name.partition(":")
        run = {**_OPERATIONS, "transmit-packet": self._transmit}.get(operation)
        if node is None or not node.connected or not node.ready or run is None:
            return 500, _failed("No implementation of RPC available")
        status, output = run(node, given)
        return status, {f"{module}:output": output} if status == 200 else output

    def _transmit(self, node: FakeNode, given: Json) -> tuple[int, Json | None]:
        """Count a UDP packet by the rule for it at the other end of the wire."""
        frame = base64.b64decode(given["payload"])
        assert frame[12:14] == b"\x08\x00" and frame[23] == 17
        here = re.findall(r"id='(openflow:\d+:\d+)'", given["egress"])[0]
        there = self.wires.get(here, "openflow:0:0")
        meets = {
            "in-port": there,
            "udp-source-port": int.from_bytes(frame[34:36], "big"),
            "udp-destination-port": int.from_bytes(frame[36:38], "big"),
        }
        other = self.nodes.get(int(there.split(":")[1]))
        for entry in other.table.values() if other else ():
            if entry.flow["match"].items() >= meets.items():
                entry.bytes += len(frame)
        return 204, None


def _add(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    if node.refusal and _key(given) not in node.table:
        return 500, _failed(node.refusal)
    _lay(node, given)
    return 204, None


def _remove(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    node.changes += 1
    for key, entry in list(node.table.items()):
        named = not given.get("strict") or key == _key(given)
        if named and _under_cookie(entry, given) and not node.lazy:
            del node.table[key]
    return 204, None


def _flows(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    listed = [
        {**_printed(entry.flow), **_statistics(entry, node.clock())}
        for entry in node.table.values()
        if _under_cookie(entry, given)
    ]
    return (200, {"flow-and-statistics-map-list": listed}) if listed else (204, None)


def _ports(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    listed = [
        {"node-connector-id": str(port), "bytes": {"transmitted": "1000", "received": "7"}}
        for port in [*node.ports, "LOCAL"]
    ]
    return 200, {"node-connector-statistics-and-port-number-map": listed}


def _add_group(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    if node.refusal or given["group-id"] in node.groups:
        return 500, _failed(node.refusal or "Device reported error type GROUPMODFAILED")
    return _update_group(node, {"updated-group": given})


def _update_group(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    node.changes += 1
    if not node.lazy:
        node.groups[given["updated-group"]["group-id"]] = given["updated-group"]
    return 204, None


def _remove_group(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    node.changes += 1
    if not node.lazy:
        node.groups.pop(given["group-id"], None)
        refers = f'"group-id": {given["group-id"]}}}'
        node.table = {k: e for k, e in node.table.items() if refers not in json.dumps(e.flow)}
    return 204, None


def _groups(node: FakeNode, given: Json) -> tuple[int, Json | None]:
    listed = [{"group-id": number, "ref-count": 1} for number in node.groups]
    return (200, {"group-stats": listed}) if listed else (204, None)


_OPERATIONS = {
    "add-group": _add_group,
    "update-group": _update_group,
    "remove-group": _remove_group,
    "get-group-statistics": _groups,
    "add-flow": _add,
    "remove-flow": _remove,
    "get-flow-statistics": _flows,
    "get-node-connector-statistics": _ports,
    "send-barrier": lambda node, given: (204, None),
}


def _under_cookie(entry: Entry, given: Json) -> bool:
    mask = int(given.get("cookie_mask", 0))
    return int(entry.flow["cookie"]) & mask == int(given.get("cookie", 0)) & mask


def _connector(dpid: int, port: object, node: FakeNode) -> Json:
    down, closed = port == "LOCAL" or port in node.down, port in node.closed
    return {
        "id": f"openflow:{dpid}:{port}",
        "flow-node-inventory:name": f"s{dpid}-{port}",
        "flow-node-inventory:current-speed": 10_000_000,
        "flow-node-inventory:state": {"link-down": down, "blocked": False},
        "flow-node-inventory:configuration": "PORT-DOWN"
        if port == "LOCAL"
        else "NO-FWD NO-PACKET-IN"
        if closed
        else "",
    }


def _lay(node: FakeNode, flow: Json) -> None:
    node.changes += 1
    if node.lazy:
        return
    before = node.table.get(_key(flow))
    node.table[_key(flow)] = Entry(flow, node.clock(), before.bytes if before else 0)


def _key(flow: Json) -> tuple[int, str]:
    return int(flow["priority"]), json.dumps(flow.get("match", {}), sort_keys=True)


def _is_stamp(flow: Json) -> bool:
    """Of an experimental Ethernet type (IEEE 802), which nothing sends."""
    kind = flow.get("match", {}).get("ethernet-match", {}).get("ethernet-type", {}).get("type")
    return bool(kind == 0x88B6)


def _expire(node: FakeNode) -> None:
    now = node.clock()
    node.table = {key: entry for key, entry in node.table.items() if not entry.ended(now)}


def _printed(flow: Json) -> Json:
    out = {k: v for k, v in flow.items() if k not in ("node", "strict")}
    out["cookie"] = str(flow["cookie"])
    if not flow.get("instructions", {}).get("instruction"):
        out.pop("instructions", None)
    return out


def _statistics(entry: Entry, now: float) -> Json:
    age = now - entry.since
    return {
        "duration": {"second": int(age), "nanosecond": int(age % 1 * 1e9)},
        "byte-count": str(entry.bytes),
        "packet-count": "0",
        "flags": "",
        "flow-id": "#UF$TABLE*0-1",
    }


def _errors(error: Json) -> Json:
    return {"errors": {"error": [{**error, "error-type": "application"}]}}


def _failed(message: str) -> Json:
    return _errors({"error-tag": "operation-failed", "error-message": message})


def _handler(fake: FakeOpenDaylight) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits for an acknowledgement

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            data = self.rfile.read(length)
            fake.wait_while_silent()
            if fake.dripping.is_set():
                self._drip()
                return
            path = unquote(self.path).removeprefix("/rests")
            taken = fake.wrong(self.command, path) if fake.wrong else None
            if taken is not None:
                self._say(*taken)
            elif not fake.authorised(self.headers.get("Authorization")):
                self._say(401, "text/html", b"<h1>Unauthorized</h1>")
            else:
                body = json.loads(data) if data else None
                status, said = fake.answer(self.command, path, body)
                text = json.dumps(said).encode() if said is not None else b""
                self._say(status, "application/yang-data+json", text)

        def _say(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _drip(self) -> None:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked has had enough
                for data in fake.drip():
                    self.wfile.write(data)
            self.close_connection = True

        do_GET = do_PUT = do_POST = do_DELETE = _do

        def log_message(self, format: str, *args: object) -> None:
            """Quietly."""

    return Handler
