"""What Open vSwitch's database says and is told, by ``ovs-vsctl``: queues, and settings of bridges
that would cost rules or packets.

Queues are for datapaths that keep to OpenFlow queues (the kernel's, hardware); the userspace one
ignores them. A queue has the number of its mark, and queue 0 is best effort. Open vSwitch's queues
have no hierarchy, so :class:`~network_provisioner.base.controller.Queue` cannot be had this way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import AdonError
from network_provisioner.base.units import format_rate
from network_provisioner.controllers.shaping.shapes import LAST_PRIO, Commands, DeviceShape, answer

# What says in the database that a record is ours, and whose device it is for.
_MARK = "adon-device"
# Before 3.2, Open vSwitch keeps rates as bytes per second in 32 bits; larger ones wrap around.
_MOST_BPS, _UNBOUND = 8.0 * (1 << 32), (3, 2)
_VSCTL = ("ovs-vsctl", "--timeout=10")
_OURS = ("--bare", "--columns=_uuid", "find")
_Rates = tuple[int, int, int]
_LIST = (
    "--format=json", "--columns=_uuid,other_config", "list", "queue",
    "--", "--columns=_uuid,queues,other_config", "list", "qos",
    "--", "--columns=name,qos", "list", "port",
)  # fmt: skip

LEAST_BUFFER = 4_000_000  # bytes, of sockets that the userspace datapath sends by
_BUFFER = "/proc/sys/net/core/wmem_default"
_BRIDGE = "name,datapath_id,datapath_type,fail_mode,stp_enable,rstp_enable,flow_tables,ports"
_SETTINGS = {
    "Bridge": _BRIDGE,
    "Flow_Table": "_uuid,flow_limit,overflow_policy",
    "Port": "_uuid,name,interfaces",
}
_TREES = ("stp_enable", "rstp_enable")
_TREE = "its ports drop packets for half a minute, or for as long as there is another way"


class _Records(NamedTuple):
    """What the database has: what each queue and QoS says, the queues of each QoS by number, and
    the QoS of each port."""

    config: dict[str, dict[str, str]]
    queues: dict[str, dict[int, str]]
    qos: dict[str, str]


class VsctlShaper:
    """A :class:`~network_provisioner.controllers.shaping.shapes.Shaper` by Open vSwitch's queues.

    Each step is one transaction for each device that changes. Records are changed in place, so what
    is queued stays queued.
    """

    def __init__(self, run: Commands) -> None:
        self._run = run
        # Which queues a device has, by number: the record's UUID and what it says.
        self._laid: dict[str, dict[int, tuple[str, _Rates]]] = {}
        self._qos: dict[str, str] = {}
        self._is_unbound = False  # whether rates are known to be kept whole

    def begin(self, shapes: Iterable[DeviceShape]) -> None:
        for shape in shapes:
            self._check_rate(shape)
            records = self._say([*_OURS, "qos", _ours(shape.device)])
            if records:
                self._qos[shape.device] = records[0]
            else:
                self._lay(shape)

    def sync(self, shapes: Iterable[DeviceShape]) -> list[str]:
        wanted = list(shapes)
        for shape in wanted:
            self._check_rate(shape)
        records = self._records() if any(s.device in self._laid for s in wanted) else None
        others = [s for s in wanted if records is None or not self._agrees(s, records)]
        for shape in others:
            self._remove(shape.device)
            self._lay(shape)
        return [shape.device for shape in others]

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        for shape in shapes:
            self._check_rate(shape)
            if shape.device in self._laid:
                self._change(shape, _queues(shape))
            else:
                self.sync([shape])

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        for shape in shapes:
            laid = self._laid.get(shape.device, {})
            gone = sorted(laid.keys() - _queues(shape).keys())
            if gone:
                steps = [["remove", "qos", self._qos[shape.device], "queues", *map(str, gone)]]
                steps += [["destroy", "queue", laid[number][0]] for number in gone]
                self._transact(steps)
                for number in gone:
                    del laid[number]

    def doubt(self, devices: Iterable[str] | None = None) -> None:
        for device in list(self._laid if devices is None else devices):
            self._laid.pop(device, None)

    def remove(self, devices: Iterable[str]) -> None:
        look = ["--columns=external_ids", "list"]
        marks = self._say(["--bare", *look, "qos", "--", *look, "queue"])
        for device in devices:
            if f"{_MARK}={device}" in marks:
                self._remove(device)

    def _check_rate(self, shape: DeviceShape) -> None:
        """Raises ControllerError for a device that would be slowed down."""
        if shape.capacity_bps < _MOST_BPS or self._is_unbound:
            return
        # Only the start scripts of Open vSwitch write its version down.
        questions = (["get", "open_vswitch", ".", "ovs_version"], ["--version"])
        texts = (" ".join(self._say(words)) for words in questions)
        version = next(filter(None, (re.search(r"(\d+)\.(\d+)\S*\b", it) for it in texts)), None)
        numbers = (int(version[1]), int(version[2])) if version else _UNBOUND
        self._is_unbound = numbers >= _UNBOUND
        if version and not self._is_unbound:
            raise ControllerError(
                f"queues of {shape.device} at {format_rate(shape.capacity_bps)}: Open vSwitch "
                f"{version[0]} keeps at most {format_rate(_MOST_BPS)}, expected 3.2 or later, or "
                "bandwidth: dscp-htb"
            )

    def _records(self) -> _Records:
        queues, qos, ports = _tables(answer(self._run, [*_VSCTL, *_LIST]), 3)
        return _Records(
            {uuid: config for uuid, config in queues} | {uuid: config for uuid, _, config in qos},
            {uuid: numbered for uuid, numbered, _ in qos},
            {name: uuid for name, uuid in ports if uuid},
        )

    def _agrees(self, shape: DeviceShape, records: _Records) -> bool:
        """Whether the device has the queues that were laid last, and these are the wanted ones."""
        laid, qos = self._laid.get(shape.device), self._qos.get(shape.device, "")
        if laid is None or {n: rates for n, (_, rates) in laid.items()} != _queues(shape):
            return False
        return (
            records.qos.get(shape.device) == qos
            and records.config.get(qos) == _link_config(shape)
            and records.queues.get(qos) == {number: uuid for number, (uuid, _) in laid.items()}
            and all(records.config.get(uuid) == _values(rates) for uuid, rates in laid.values())
        )

    def _lay(self, shape: DeviceShape) -> None:
        queues = _queues(shape)
        named = ",".join(f"{number}=@q{number}" for number in queues)
        config = [f"other_config:{name}={value}" for name, value in _link_config(shape).items()]
        qos = ["--id=@qos", "create", "qos", "type=linux-htb", _ours(shape.device), *config]
        made = self._transact(
            [
                [*qos, f"queues={named}"],
                *([f"--id=@q{n}", *_create(shape.device, rates)] for n, rates in queues.items()),
                ["set", "port", shape.device, "qos=@qos"],
            ]
        )
        self._qos[shape.device] = made[0]
        self._laid[shape.device] = {
            number: (uuid, rates)
            for (number, rates), uuid in zip(queues.items(), made[1:], strict=False)
        }

    def _change(self, shape: DeviceShape, wanted: Mapping[int, _Rates]) -> None:
        """Changes and adds queues; those that are not wanted stay."""
        laid = self._laid[shape.device]
        steps: list[list[str]] = []
        new = [number for number in wanted if number not in laid]
        for number in new:
            steps.append([f"--id=@q{number}", *_create(shape.device, wanted[number])])
        if new:
            added = [f"queues:{number}=@q{number}" for number in new]
            steps.append(["set", "qos", self._qos[shape.device], *added])
        for number, rates in wanted.items():
            if number in laid and laid[number][1] != rates:
                steps.append(["set", "queue", laid[number][0], *_config(rates)])
        if not steps:
            return
        made = self._transact(steps)
        laid.update((n, (uuid, wanted[n])) for n, uuid in zip(new, made, strict=False))
        laid.update((n, (laid[n][0], rates)) for n, rates in wanted.items())

    def _remove(self, device: str) -> None:
        """Take what is ours off a device, whoever made it."""
        qos = self._say([*_OURS, "qos", _ours(device)])
        queues = self._say([*_OURS, "queue", _ours(device)])
        self._laid.pop(device, None)
        self._qos.pop(device, None)
        if qos or queues:
            on = self._say(["--if-exists", "get", "port", device, "qos"])
            # Somebody may have put another in its place.
            steps = [["clear", "port", device, "qos"]] if set(on) & set(qos) else []
            steps += [["destroy", "qos", uuid] for uuid in qos]
            steps += [["destroy", "queue", uuid] for uuid in queues]
            self._transact(steps)

    def _transact(self, steps: Iterable[Sequence[str]]) -> list[str]:
        """Do these in one transaction; the records that it makes."""
        return self._say([word for step in steps for word in ("--", *step)][1:])

    def _say(self, words: Sequence[str]) -> list[str]:
        """Run ovs-vsctl; the words it answers. Raises ControllerError, MissingError."""
        return answer(self._run, [*_VSCTL, *words]).split()


def _queues(shape: DeviceShape) -> dict[int, _Rates]:
    """Minimum and maximum rate and priority of every queue; 0 is best effort."""
    best_effort = (round(shape.best_effort_bps), round(shape.capacity_bps), LAST_PRIO)
    return {0: best_effort} | {
        c.mark: (round(c.rate_bps), round(c.ceil_bps), c.prio) for c in shape.classes
    }


def _ours(device: str) -> str:
    """What our records for a device have."""
    return f"external_ids:{_MARK}={device}"


def _link_config(shape: DeviceShape) -> dict[str, str]:
    return {"max-rate": str(round(shape.capacity_bps))}


def _create(device: str, rates: _Rates) -> list[str]:
    return ["create", "queue", _ours(device), *_config(rates)]


def _config(rates: _Rates) -> list[str]:
    return [f"other_config:{name}={value}" for name, value in _values(rates).items()]


def _values(rates: _Rates) -> dict[str, str]:
    return dict(zip(("min-rate", "max-rate", "priority"), map(str, rates), strict=True))


def bridge_warnings(runner: Commands, dpids: Collection[int]) -> list[str]:
    """In words, what is set on bridges with these datapath ids that costs rules or packets; nothing
    where there is no Open vSwitch to ask."""
    try:
        bridges, tables, ports = (_rows(runner, *item, 5) for item in _SETTINGS.items())
        ours = [row for row in bridges if _dpid(row) in dpids]
        userspace = [row["name"] for row in ours if row["datapath_type"] == "netdev"]
        buffer = int(runner.ask(["cat", _BUFFER])[1] or 0) if userspace else LEAST_BUFFER
    except (AdonError, OSError, ValueError, KeyError, TypeError):
        return []
    warnings = []
    for row in ours:
        name = row["name"]
        warnings += [
            f"{name}: {key} is {value}, expected {wanted}, as {why}: ovs-vsctl set bridge {name} "
            f"{key}={wanted}"
            for key, value, wanted, why in _faults(row)
        ]
        warnings += [
            f"{name}: port {port['name']} is a bond, whose packets come in by several OpenFlow "
            "ports, expected one: let the kernel bond them"
            for port in ports
            if isinstance(port["interfaces"], list) and port["_uuid"] in (row["ports"] or ())
        ]
        for table in tables:
            if table["_uuid"] in row["flow_tables"].values() and table["flow_limit"]:
                what = "and evicts rules" if table["overflow_policy"] == "evict" else "at most"
                warnings.append(f"{name}: a flow table holds {table['flow_limit']} rules {what}")
    if userspace and buffer < LEAST_BUFFER:
        warnings.append(
            f"{', '.join(userspace)}: userspace datapath with a send buffer of {buffer} bytes, "
            f"expected {LEAST_BUFFER}: sysctl net.core.wmem_default={LEAST_BUFFER}"
        )
    return warnings


def insecure_bridges(runner: Commands, dpids: Collection[int]) -> dict[int, str]:
    """What is wrong with ``fail_mode`` and spanning trees of the bridges with these datapath ids,
    in words; those that the database does not have are left out. Raises ControllerError where it
    does not answer, MissingError for no ``ovs-vsctl``."""
    columns = ",".join(("datapath_id,fail_mode", *_TREES))
    ours = (row for row in _rows(runner, "Bridge", columns, 1) if _dpid(row) in dpids)
    insecure = {
        _dpid(row): "; ".join(
            f"has {key} {value}, expected {wanted}: {why}"
            for key, value, wanted, why in _faults(row)
        )
        for row in ours
    }
    return {dpid: faults for dpid, faults in insecure.items() if faults}


def _dpid(row: Mapping[str, Any]) -> int:
    return int(row["datapath_id"] or "0", 16)


def _faults(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Settings of a bridge: what they are, what they should be, and why."""
    if row["fail_mode"] != "secure":
        mode = row["fail_mode"] or "standalone"
        yield "fail_mode", mode, "secure", "without the broker it is a plain switch"
    for key in _TREES:
        if row[key]:
            yield key, "true", "false", _TREE


def _rows(runner: Commands, table: str, columns: str, timeout_s: int) -> list[dict[str, Any]]:
    """Raises ControllerError, MissingError."""
    words = ["ovs-vsctl", f"--timeout={timeout_s}", "--format=json", f"--columns={columns}", "list"]
    code, out, error = runner.ask([*words, table])
    if code != 0:
        why = error.strip().rpartition("\n")[2] or f"exit code {code}"
        raise ControllerError(f"the database of Open vSwitch does not answer: {why}")
    (rows,) = _tables(out, 1)
    return [dict(zip(columns.split(","), row, strict=False)) for row in rows]


def _tables(output: str, count: int) -> list[list[list[Any]]]:
    """The rows of so many tables, printed as JSON. Raises ControllerError."""
    try:
        tables = [
            [list(map(_plain, row)) for row in json.loads(line)["data"]]
            for line in output.splitlines()
        ]
        if len(tables) != count:
            raise ValueError(f"{len(tables)} tables")
        return tables
    except (ValueError, KeyError, TypeError) as error:
        raise ControllerError(
            f"the database of Open vSwitch answered what cannot be read: {error!r}"
        ) from error


def _plain(value: Any) -> Any:
    """A value of OVSDB's JSON (RFC 7047, section 5.1): a dict for a map, a list for a set and None
    for an empty one, the text of a UUID."""
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "map":
        return {key: _plain(item) for key, item in content}
    return content if kind == "uuid" else [_plain(item) for item in content] or None
