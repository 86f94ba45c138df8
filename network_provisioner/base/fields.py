"""Fields of plain data that people wrote: taken with their type, or refused in one line.

``what`` names the place. Every function raises InputError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from reprlib import repr as shown
from typing import Any, TypeGuard, TypeVar

from network_provisioner.base.errors import InputError, meant

T = TypeVar("T")
_MAC = re.compile(
    r"([0-9a-f]{1,2}[:\- ]){5}[0-9a-f]{1,2}|([0-9a-f]{4}[.:-]){2}[0-9a-f]{4}"
    r"|[0-9a-f]{6}[:-][0-9a-f]{6}|(0x)?[0-9a-f]{12}"
)
_MOST_PORT = 0xFFFFFF00  # OFPP_MAX; those above have meanings of their own (OpenFlow 1.3, §7.2.1)
_LOCAL_PORT = 0xFFFFFFFE
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]{1,3}")
_DPID_DIGITS = 16
_DPID = re.compile(
    r"openflow:(?P<decimal>[0-9]{1,20})|(0x|of:|dpid[:=])?(?P<hex>[0-9a-f]{1,16})"
    r"|(?P<parts>[0-9a-f]{1,2}([:\- ][0-9a-f]{1,2}){5,7}|[0-9a-f]{4}([.:-][0-9a-f]{4}){2,3})"
)


def known_keys(item: object, known: Sequence[str], what: str) -> None:
    """A mapping with no key but those that are known."""
    if not isinstance(item, Mapping):
        raise InputError(f"{what} is {shown(item)}, expected a mapping")
    for key in item:
        if key not in known:
            hint = meant(key, known, f"expected among {', '.join(known)}")
            raise InputError(f"{what} has the unknown key {shown(key)}, {hint}")


def items(data: Mapping[str, Any], key: str, what: str) -> list[Mapping[str, Any]]:
    """A list of mappings."""
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise InputError(f"{what}: {key!r} is {shown(value)}, expected a list of mappings")
    return value


def text(item: Mapping[str, Any], key: str, what: str) -> str:
    """A text that must be there and not be empty."""
    if key not in item:
        raise InputError(f"{what} has no {key!r}: {shown(dict(item))}")
    return name(item[key], f"{what}: {key}")


def name(value: object, what: str) -> str:
    """A text that is not empty, all of it printable."""
    if not isinstance(value, str) or not value or not value.isprintable():
        quotes = ", in quotes" if isinstance(value, bool | int | float) else ""
        raise InputError(f"{what} is {shown(value)}, expected a name{quotes}")
    return value


def mapping(
    item: Mapping[str, Any], key: str, what: str, value_of: Callable[[Any, str], T]
) -> dict[str, T] | None:
    """A mapping from names to what ``value_of`` takes, or None where there is none."""
    value = item.get(key)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InputError(f"{what}: {key} is {shown(value)}, expected a mapping by node")
    return {
        name(k, f"{what}: {key}: a key"): value_of(v, f"{what}: {key}.{k}")
        for k, v in value.items()
    }


def integral(value: Any) -> Any:
    """A float that has no fraction as the whole number it is: ``1e9`` is one billion in JSON. All
    else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole(value: object, what: str, most: int) -> int:
    """A whole number from 0 to ``most``, also in digits as text."""
    value = integral(int(value) if _is_digits(value) else value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InputError(f"{what} is {shown(value)}, expected a whole number from 0 to {most}")
    return value


def _is_digits(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20


def dpid(value: object, what: str) -> int:
    """The datapath id of a switch, 0 for none: a number, or as switches and controllers print it,
    ``00005e0a53bd7f10``, ``00:00:5e:0a:53:bd:7f:10``, ``0x5e0a53bd7f10``, ``of:00005e0a53bd7f10``
    and ``openflow:103398447611664``. Digits that may be meant both ways are refused."""
    match = _DPID.fullmatch(value.strip(' "').lower()) if isinstance(value, str) else None
    if match is None and isinstance(value, str) and not _is_digits(value):
        raise InputError(
            f"{what} is {shown(value)}, expected a datapath id such as '00005e0a53bd7f10' or "
            "'0x5e0a53bd7f10'"
        )
    if match is None:
        number = whole(value, what, 2**64 - 1)
        ambiguous = len(str(number)) == _DPID_DIGITS
    elif match["decimal"]:
        return whole(match["decimal"], what, 2**64 - 1)
    else:
        parts = re.split("[:. -]", match["parts"] or "")
        digits = match["hex"] or "".join(part.zfill(2) for part in parts)
        number = int(digits, 16)
        ambiguous = match[0].isdecimal() and digits[0] != "0" and 1 < len(digits) < _DPID_DIGITS
    if ambiguous:
        raise InputError(
            f"{what} is {shown(value)}, expected '0x{value}' in quotes where it is hexadecimal, "
            f"'{format_dpid(int(str(value)))}' where it is decimal"
        )
    return number


def format_dpid(dpid: int) -> str:
    """A datapath id as it is shown, in hexadecimal."""
    return f"0x{dpid:x}"


def number(value: object, what: str, expected: str) -> float:
    """A finite number. YAML takes ``1e-5`` for a text."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and -1e99 < value < 1e99:
        return float(value)
    raise InputError(f"{what} is {shown(value)}, expected {expected}")


def address(value: object, what: str) -> str:
    """An IP address that packets of one host have, or nothing."""
    try:
        return "" if value == "" else _of_hosts(plain_address(name(value, what)))
    except ValueError:
        raise InputError(
            f"{what} is {shown(value)}, expected an IP address such as 10.0.0.1, of a host"
        ) from None


def plain_address(text: str) -> str:
    """An IP address as text; an IPv4 address inside IPv6 (RFC 4291, section 2.5.5.2) as IPv4.
    Raises ValueError."""
    ip = ip_address(text)
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def addresses(value: object, what: str) -> str:
    """An IP address or a prefix; one that has all bits is an address."""
    try:
        network = ip_network(name(value, what))
        single = network.num_addresses == 1
        return _of_hosts(plain_address(str(network[0]))) if single else _of_hosts(str(network))
    except ValueError:
        raise InputError(
            f"{what} is {shown(value)}, expected an IP address such as 10.0.0.1, of a host, or a "
            "prefix such as 10.0.0.0/24"
        ) from None


def _of_hosts(text: str) -> str:
    """An address or prefix as it is. Raises ValueError for one that no packet of a host has as its
    source on its way through a network, or that another host may have on another link."""
    network = ip_network(text)  # none with a scope
    if (
        network.is_multicast
        or network.is_loopback
        or network.is_link_local
        or (network.num_addresses == 1 and network.is_unspecified)
        or text == "255.255.255.255"
    ):
        raise ValueError(text)
    return text


def mac(value: object, what: str) -> str:
    """A MAC address of one host in lower case with colons, or nothing."""
    if value == "":
        return ""
    written = value.strip(' "').lower() if isinstance(value, str) else ""
    if not _MAC.fullmatch(written):
        raise InputError(
            f"{what} is {shown(value)}, expected a MAC address in quotes such as "
            "'02:00:00:00:00:01'"
        )
    parts = re.split("[:. -]", written.removeprefix("0x"))
    digits = "".join(part.zfill(2) for part in parts)
    if int(digits[1], 16) & 1 or not int(digits, 16):
        raise InputError(
            f"{what} is {shown(value)}, expected the MAC address of one host, such as "
            "'02:00:00:00:00:01', and no group's"
        )
    return ":".join(digits[n : n + 2] for n in range(0, 12, 2))


def port(value: object, what: str) -> int:
    """The number of a switch's port. No packet comes in at 0, or at one of those that mean "all",
    "flood" or "the controller"."""
    number = whole(value, what, 2**32 - 1)
    if not 0 < number <= _MOST_PORT and number != _LOCAL_PORT:
        raise InputError(f"{what} is {shown(value)}, expected a port number from 1 to {_MOST_PORT}")
    return number
