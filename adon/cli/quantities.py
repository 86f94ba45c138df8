"""Times, ports and amounts as people write them after an option."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from network_provisioner.base.flows import Flow


def above_0(parse: Callable[[str, str], float], text: str | None, option: str) -> float | None:
    """What ``parse`` makes of a text, more than 0; None for None. Raises InputError."""
    from network_provisioner.base.errors import InputError

    if text is None:
        return None
    value = parse(text, option)
    if value <= 0:
        raise InputError(f"{option}: found {text!r}, expected more than 0")
    return value


def ports(texts: list[str], option: str) -> tuple[Flow, ...]:
    """``[src:][udp/]PORT[-PORT]`` as flows. Raises InputError."""
    from network_provisioner.base.errors import InputError
    from network_provisioner.base.flows import flow_from_dict

    flows = []
    for text in texts:
        side, _, rest = text.rpartition(":")
        protocol, _, ports = rest.rpartition("/")
        ends = ports.split("-")
        if side not in ("", "src", "dst") or not all(e.isdecimal() and len(e) < 6 for e in ends):
            raise InputError(
                f"{option}: found {text!r}, expected a port such as 2811, 50000-50063, src:2811 or "
                "udp/5000"
            )
        key = "src_ports" if side == "src" else "dst_ports"
        value = int(ends[0]) if len(ends) == 1 else [int(end) for end in ends]
        flows.append(flow_from_dict({"protocol": protocol or "tcp", key: value}, option))
    return tuple(flows)
