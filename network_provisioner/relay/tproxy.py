"""Has the kernel lead connections that pass a network device to this process (TPROXY): what the
switches send there is addressed to other hosts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from network_provisioner.base.errors import MissingError
from network_provisioner.relay.sockets import STREAM_MARK

MARK = 4600  # of packets that are ours; so are the table of their routes, and the place of its rule
_NFT = "adon_relay"
_WRITE = """table ip {table}
delete table ip {table}
table ip {table} {{
  # The last rule is for when nobody listens: a host that still has a connection, for a reset came
  # to it out of order, is told again, and new ones are refused.
  chain prerouting {{
    type filter hook prerouting priority mangle; policy accept;
    iifname "{device}" ip daddr {address} accept
    iifname "{device}" meta l4proto tcp socket transparent 1 meta mark set {mark} accept
    iifname "{device}" meta l4proto tcp tproxy to :{port} meta mark set {mark} accept
    iifname "{device}" meta l4proto tcp reject with tcp reset
  }}
}}
"""


@contextmanager
def tproxy(address: str, port: int) -> Iterator[None]:
    """While this lasts, TCP to other hosts that comes in where ``address`` is arrives at ``port``.
    What one that was killed left behind is used on.

    Raises MissingError: no such address, no right to do so, no nft, or a kernel without TPROXY.
    """
    device = _device_of(address)
    names = {"table": _NFT, "device": device, "address": address, "port": port, "mark": MARK}
    try:
        _do(["nft", "-f", "-"], _WRITE.format(**names))
        for mark in (MARK, STREAM_MARK):
            rule = ["pref", str(mark), "fwmark", str(mark), "lookup", str(mark)]
            if not _do(["ip", "rule", "show", *rule[:2]]):
                _do(["ip", "rule", "add", *rule])
        _do(["ip", "route", "replace", "local", "0.0.0.0/0", "dev", "lo", "table", str(MARK)])
        _do(["sysctl", "-qw", f"net.ipv4.conf.{device}.rp_filter=2"])
        yield
    finally:
        _take_away()


def begin_with(peer: str, segments: int) -> None:
    """Have streams to an agent begin with so many segments under way: their rate is reserved, and
    they are paced, so there is nothing to feel for. Raises MissingError."""
    way = _do(["ip", "-4", "-o", "route", "get", peer]).split(" uid ")[0].split()
    words = ["ip", "route", "replace", *way, "initcwnd", str(segments), "table", str(STREAM_MARK)]
    _do(words)


def _device_of(address: str) -> str:
    shown = _do(["ip", "-4", "-o", "address", "show"])
    for line in shown.splitlines():
        found = re.match(r"\d+: (\S+) +inet ([0-9.]+)/", line)
        if found and found[2] == address:
            return found[1]
    raise MissingError(f"{address} is no address of this host, expected its own in the data plane")


def _take_away() -> None:
    found = [["nft", "delete", "table", "ip", _NFT]]
    for mark in (MARK, STREAM_MARK):
        found.append(["ip", "rule", "del", "pref", str(mark)])
        found.append(["ip", "route", "flush", "table", str(mark)])
    for words in found:
        with suppress(MissingError):
            _do(words)


def _do(words: Sequence[str], text: str = "") -> str:
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise MissingError(
            f"{words[0]} cannot be run: {error.strerror}; is it installed?"
        ) from None
    if done.returncode:
        why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise MissingError(f"TPROXY cannot be set up: {words[0]}: {why}")
    return done.stdout
