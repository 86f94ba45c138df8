"""The broker service: configuration in, a REST API on a port out.

Wires the pure parts together: topology and templates from ``adon.yml``, a controller, the broker's
store, and the measurement archive as the recorder of transfers and the source of throughput.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from adon.config import Config, ControllerConfig, load_config, split_address
from adon.testbed import syscalls
from network_provisioner.errors import AdonError, InputError, MissingError
from network_provisioner.topology import Path as NetworkPath
from network_provisioner.topology import Topology, topology_from_dict

if TYPE_CHECKING:
    from monitors.archive import Archive
    from network_provisioner.broker import Broker
    from network_provisioner.controllers.base import Controller

LOG = logging.getLogger("adon.service")
_SWITCHES_CONNECT_S = 20.0
_BACKLOG = 128


def make_controller(config: ControllerConfig, topology: Topology) -> Controller:
    """The driver that the configuration names. Raises InputError, and MissingError for no tc."""
    if config.driver == "simulated":
        from network_provisioner.controllers.simulated import SimulatedController

        return SimulatedController(topology)
    from network_provisioner.controllers.openflow import OpenFlowController
    from network_provisioner.controllers.shaper import CommandRunner, TcShaper

    program = [*config.exec, "tc"][0]
    if any(link.devices for link in topology.links) and shutil.which(program) is None:
        # Said before the switches are waited for.
        raise MissingError(
            f"{program}: found no such program, expected it for the rates of the links that name "
            "devices; it is in the Debian package iproute2"
        )
    return OpenFlowController(topology, config.listen, TcShaper(CommandRunner(config.exec)))


def measured_throughput(
    archive: Archive, clock: Callable[[], float] = time.time
) -> Callable[[NetworkPath], tuple[float, float] | None]:
    """Look up what transfers over a path reached: bit/s and the age in seconds, or None."""

    def lookup(path: NetworkPath) -> tuple[float, float] | None:
        now = clock()
        subject = f"{path.nodes[0]}>{path.nodes[-1]}/{path.layer}"
        found = archive.estimate("path_throughput", subject, now)
        return (found.value, now - found.at) if found else None

    return lookup


def make_broker(config: Config, archive: Archive) -> Broker:
    """A broker as configured, not started yet. Raises InputError, StoreError."""
    from monitors.transfers import Recorder
    from network_provisioner.broker import Broker
    from network_provisioner.store import SqliteStore
    from network_provisioner.template import templates_from_dict

    topology = topology_from_dict(config.topology)
    return Broker(
        topology,
        templates_from_dict(config.templates),
        make_controller(config.controller, topology),
        SqliteStore(config.broker.state),
        Recorder(archive),
        measured_throughput(archive),
    )


def listening_socket(address: str) -> socket.socket:
    """A bound socket, so that a port in use is one clear line and not a traceback.

    Raises InputError naming the address.
    """
    host, port = split_address(address, "broker.listen")
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise InputError(
            f"cannot listen on {address}: {why}; expected a free one in broker.listen"
        ) from None
    sock.set_inheritable(True)
    return sock


def serve(
    config_file: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Run the broker until it is told to stop; ``say`` is told in a line when it can be asked.

    Returns an exit code. Raises AdonError.
    """
    import uvicorn

    from monitors.archive import Archive
    from network_provisioner.api import create_app

    config = load_config(config_file)
    sock = listening_socket(config.broker.listen)
    archive = Archive(config.broker.archive)
    broker = make_broker(config, archive)
    if config.controller.driver == "openflow":
        say(
            f"broker: waits up to {_SWITCHES_CONNECT_S:g} s for the switches to connect to "
            f"{config.controller.listen}"
        )
    broker.start(_SWITCHES_CONNECT_S)
    try:
        app = create_app(broker, config.broker.token)
        settings = uvicorn.Config(app, log_level="warning", access_log=False)
        # uvicorn passes the signal that stopped it on to the handler that was there before. That
        # must not be the default one: it would end the process before the switches are cleared.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        sock.listen(_BACKLOG)  # from here on who asks waits for an answer and is not refused
        say(
            f"broker: http://{config.broker.listen}, {config.controller.driver} controller, sites "
            + ", ".join(broker.topology.sites)
        )
        uvicorn.Server(settings).run(sockets=[sock])
    finally:
        broker.stop()
        archive.close()
        sock.close()
    return 0


def main() -> int:
    """``python -m adon.service --config adon.yml``: as ``adon broker``, for supervisors."""
    parser = argparse.ArgumentParser(prog="adon.service")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument(
        "--tied-to", type=int, metavar="PID", help="end with this process, which started it"
    )
    args = parser.parse_args()
    if args.tied_to is not None and not syscalls.tie_to(args.tied_to):
        return 2  # it ended while this one was starting
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        code = serve(args.config)
    except AdonError as error:
        print(f"adon broker: {error}", file=sys.stderr)
        code = 2
    except OSError as error:
        print(f"adon broker: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        code = 2
    sys.stdout.flush()
    sys.stderr.flush()
    # The OpenFlow library's threads are not daemons and cannot be stopped: everything of ours is
    # closed by now, so the process may simply end.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
