"""The broker service: configuration in, a REST API on a port out."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from adon.config.adon_yml import changes_text, load_config, used_files
from adon.config.sections import Config, split_address
from adon.config.security import (
    LiveKeyring,
    check_exposure,
    own_host,
    protection_text,
    tls_context,
    trust_of,
)
from adon.machine import syscalls
from adon.service.leading import ALONE_S, SWITCHES_CONNECT_S, Leading, carry_over
from adon.service.wiring import make_broker, make_controller
from network_provisioner.base.daemon_log import log_to
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.topology.data import topology_from_dict

if TYPE_CHECKING:
    from ssl import SSLContext

    from adon.service.monitoring import Monitoring
    from monitors.archive.outbox import Outbox
    from network_provisioner.access import Keyring
    from network_provisioner.broker import Broker
    from network_provisioner.stores.store import Store

log = logging.getLogger(__name__)

_BACKLOG = 128
_KEPT_SOCKET = "ADON_KEPT_SOCKET"  # its descriptor and address, from before a reload


def listening_socket(address: str) -> socket.socket:
    """A bound socket, so that a port in use is one clear line and not a traceback. After a reload
    it is the one from before, so that clients that connect meanwhile wait and are not refused.

    Raises InputError naming the address.
    """
    kept = os.environ.pop(_KEPT_SOCKET, "").partition(" ")
    if kept[2]:
        sock = socket.socket(fileno=int(kept[0]))
        if kept[2] == address:
            return sock
        sock.close()
    host, port = split_address(address, "broker.listen")
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, *_, place = min(
            addresses, key=lambda address_info: address_info[0] != socket.AF_INET
        )
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(place)
        except BaseException:
            sock.close()
            raise
    except (OSError, UnicodeError) as error:
        why, expected = getattr(error, "strerror", None) or error, "an address of this machine"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            why, expected = "the port is in use", "a free one"
        raise InputError(
            f"cannot listen on {address}: {why}; expected {expected} in broker.listen"
        ) from None
    sock.set_inheritable(True)
    return sock


def clear_switches(config_file: Path, say: Callable[[str], None]) -> int:
    """Remove everything of ours from the switches; ``say`` is told the result of each.

    Returns an exit code: 1 where switches were not reached. Raises AdonError.
    """
    from network_provisioner.base.controller import WatchesSwitches

    config = load_config(config_file)
    controller = make_controller(config.controller, topology_from_dict(config.topology))
    if not callable(getattr(controller, "clear", None)):
        raise InputError(f"controller.driver: {config.controller.driver} has no clear()")
    controller.start(SWITCHES_CONNECT_S)
    try:
        controller.clear()
        switches = controller.switches() if isinstance(controller, WatchesSwitches) else ()
        for switch in switches:
            say(f"{switch.label}: {'cleared' if switch.connected else 'is not connected'}")
        return int(any(not switch.connected for switch in switches))
    finally:
        controller.stop()


def read_settings(config_file: Path) -> tuple[Config, LiveKeyring, SSLContext | None]:
    """All that a broker reads before it opens anything: its configuration, who may ask, and its
    certificate. Raises AdonError."""
    config = load_config(config_file)
    keyring = LiveKeyring(config_file, config)
    check_exposure(config, keyring)
    return (
        config,
        keyring,
        None if config.security.tls is None else tls_context(config.security.tls),
    )


def serve(
    config_file: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Run the broker until it is told to stop; ``say`` is told in a line when it can be asked.

    SIGHUP has it read ``config_file`` again. Returns an exit code. Raises AdonError.
    """
    while _serve(config_file, say):
        say("broker: another broker leads; restarting as a follower")
    return 0


def _reloading(config_file: Path, used: Config, end: Callable[[], None]) -> Callable[[], bool]:
    """Let SIGHUP ``end`` the service where ``config_file``, of which it has ``used``, can be used;
    tells whether it did. On a terminal the signal says that this one is closed, and ends the
    process."""
    reloads: list[bool] = []

    def check() -> None:
        try:
            config, *_ = read_settings(config_file)
            make_controller(config.controller, topology_from_dict(config.topology))
        except AdonError as error:
            log.error("the configuration is unchanged: %s", error)
            return
        log.warning("%s is read again: %s", config_file, changes_text(used, config))
        reloads.append(True)
        end()

    if not sys.stderr.isatty():
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=check, daemon=True).start())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return lambda: bool(reloads)


def _notify(state: str) -> None:
    """Tell systemd, where it started this service (sd_notify(3))."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.sendto(state.encode(), place.replace("@", "\0", 1))


def _restart(address: str, sock: socket.socket) -> NoReturn:
    """Be the same command anew, in this process: threads of libraries cannot be stopped."""
    # The new program has no handler yet, and the signal would end it; blocked, it waits for one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    sock.set_inheritable(True)
    os.environ[_KEPT_SOCKET] = f"{sock.fileno()} {address}"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)


def _serve(config_file: Path, say: Callable[[str], None]) -> bool:
    """Run the broker; whether it ended because another one leads in its place."""
    from monitors.archive.archive import Archive
    from monitors.archive.outbox import Outbox
    from network_provisioner.api import create_app
    from network_provisioner.api.connection import server

    config, keyring, tls = read_settings(config_file)
    sock = listening_socket(config.broker.listen)
    archive = Archive(config.broker.archive)
    outbox = Outbox(archive)
    broker, registries = make_broker(config, outbox)
    for warning in broker.topology.warnings:
        say(f"broker: {warning}")
    if config.controller.driver == "openflow":
        say(
            f"broker: waits up to {SWITCHES_CONNECT_S:g} s for the switches to connect to "
            f"{config.controller.listen}"
        )
    try:
        monitoring = monitoring_of(
            config, config_file.absolute().parent, outbox, broker, keyring, store=registries.store
        )
    except BaseException:
        archive.close()
        raise
    renaming = partial(carry_over, broker.topology, registries.store, archive)
    leading = Leading(broker, registries, config.broker_address, monitoring.start, renaming)
    try:
        leading.start()
        app = create_app(
            broker,
            keyring,
            registries,
            monitoring.routers,
            monitoring.collectors,
            monitoring.pages,
            own_host(config),
            trust_of(config.security.tls),
        )
        web = server(app, tls)
        leading.wait(ALONE_S)
        leading.on_end(lambda: setattr(web, "should_exit", True))
        # uvicorn passes the signal that stopped it on to the handler that was there before. That
        # must not be the default one: it would end the process before the store is closed.
        stopped: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: stopped.append(number))
        reloads = _reloading(config_file, config, lambda: setattr(web, "should_exit", True))
        sock.listen(_BACKLOG)  # from here on who asks waits for an answer and is not refused
        say(
            f"broker: {'https' if tls else 'http'}://{config.broker.listen} "
            f"({protection_text(config, keyring)}), {config.controller.driver} controller, sites "
            + ", ".join(broker.topology.sites)
        )
        if broker.follows and broker.leader is not None:
            say(f"broker: follows {broker.leader.address}, which leads on the same database")
        for warning in used_files(config, config_file):
            say(f"broker: {warning}")
        _notify("READY=1")
        kept = sock.dup()  # uvicorn closes the other one
        web.run(sockets=[sock])
        leading.wait()
    finally:
        leading.stop()
        monitoring.stop()
        broker.stop()
        archive.close()
        sock.close()
    if reloads() and not stopped:
        _restart(config.broker.listen, kept)
    kept.close()
    return leading.replaced and not stopped


def monitoring_of(
    config: Config,
    folder: Path,
    outbox: Outbox,
    broker: Broker,
    keyring: Keyring,
    clock: Callable[[], float] = time.time,
    store: Store | None = None,
) -> Monitoring:
    """What runs beside paths, not started; files that ``config`` names are relative to ``folder``,
    and ``clock`` gives Unix seconds. Raises InputError."""
    from adon.config.sections import MonitoringConfig
    from adon.service.monitoring import make_monitoring, notifier_of
    from adon.service.parts import PartContext
    from monitors.rules import rules_from_list
    from monitors.workflows.overview import Owners

    archive = outbox.archive
    settings = config.monitoring or MonitoringConfig()
    around = PartContext(
        settings=settings,
        collector=config.pool.collector if config.pool else None,
        state=config.broker.state,
        folder=folder,
        archive=archive,
        outbox=outbox,
        broker=broker,
        topology=broker.topology,
        keyring=keyring,
        rules=rules_from_list(settings.access, broker.topology, Owners(archive)),
        notifier=notifier_of(settings, archive, clock, folder),
        clock=clock,
        store=store,
    )
    return make_monitoring(around)


def main() -> int:
    """``python -m adon.service.serve --config adon.yml``: as ``adon broker``, for supervisors."""
    parser = argparse.ArgumentParser(prog="adon.service.serve")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument(
        "--tied-to", type=int, metavar="PID", help="end with this process, which started it"
    )
    args = parser.parse_args()
    if args.tied_to is not None and not syscalls.tie_to(args.tied_to):
        return 2  # it ended while this one was starting
    log_to()
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
