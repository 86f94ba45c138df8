"""Network namespaces, veth pairs, addresses: a thin layer over ``ip`` in its batch mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from examples.testbed.procs import run

LARGE_FRAMES = {
    # Paced by bbr, streams pass switches and links packet by packet, which costs half a processor.
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_min_tso_segs": "16",
}
"""For the traffic of others: its rate is that of its sender, whatever the kernel's defaults."""

TCP_BUFFERS = {
    # Autotuning up to several bandwidth-delay products of the 200 Mb/s, 53 ms path (1.3 MB).
    "net.ipv4.tcp_wmem": "4096 65536 33554432",
    "net.ipv4.tcp_rmem": "4096 131072 33554432",
    # No memory of earlier connections: one transfer must not set the window of the next.
    "net.ipv4.tcp_no_metrics_save": "1",
}
"""All of them belong to the network namespace, none to the machine."""

QUIET = {
    # No router solicitations and no duplicate-address detection among the measured packets. For
    # devices made from now on: the loopback device keeps its ::1.
    "net.ipv6.conf.default.disable_ipv6": "1",
}


def add(name: str) -> None:
    """Make a named network namespace with its loopback up. Raises AdonError."""
    run(["ip", "netns", "add", name])
    batch(name, ["link set lo up"])


def delete(name: str) -> None:
    """Remove a named network namespace; its devices go with its last process. Raises AdonError."""
    run(["ip", "netns", "del", name])


def batch(name: str | None, commands: Iterable[str]) -> None:
    """Run ``ip`` commands in order in a namespace (None: this one). Raises AdonError."""
    run(["ip", *_in(name), "-batch", "-"], stdin="\n".join(commands) + "\n")


def traffic_control(name: str | None, commands: Iterable[str]) -> None:
    """Run ``tc`` commands in order in a namespace (None: this one). Raises AdonError."""
    run(["tc", *_in(name), "-batch", "-"], stdin="\n".join(commands) + "\n")


def sysctl(name: str | None, settings: Mapping[str, str]) -> None:
    """Set ``net.*`` values of a namespace (None: this one). Raises AdonError."""
    run([*execute(name), "sysctl", "-qw", *(f"{k}={v}" for k, v in settings.items())])


def execute(name: str | None) -> list[str]:
    """The words to put before a command so that it runs in a namespace."""
    return [] if name is None else ["ip", "netns", "exec", name]


def _in(name: str | None) -> list[str]:
    return [] if name is None else ["-n", name]
