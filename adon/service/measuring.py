"""Measurement tasks, their schedule, and agents."""

from __future__ import annotations

import fcntl
import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.config.monitoring import agents_of, candidate_paths_of, registry_of
from adon.service.parts import MonitoringPart, PartContext, Silent
from monitors.base.background import Background
from network_provisioner.access import Role
from network_provisioner.base.database_url import database_name, is_database_url
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.base.private import open_lock
from network_provisioner.topology.link_failures import News

if TYPE_CHECKING:
    from fastapi import APIRouter

    from monitors.measurements.coordinator import Coordinator


_SWEEP_S = 1.0
_MEMORY = ":memory:"
EARLIER = "adon-measuring.sqlite"
"""What the file was called for every broker of a folder."""
_log = logging.getLogger(__name__)


class Sweeper:
    """Makes the coordinator's runs come and go, in a thread of its own, about once a second."""

    def __init__(
        self,
        take_over: Callable[[], None],
        sweep: Callable[[], None],
        close: Callable[[], None],
    ) -> None:
        self._take_over, self._sweep, self._close = take_over, sweep, close
        self._thread = Background("adon-coordinator", self._run)
        self._stop = self._thread.stopping

    def start(self) -> None:
        """Begin. Raises StoreError."""
        self._take_over()
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end. Harmless where it was never started, or stopped before."""
        self._thread.stop()
        self._close()

    def _run(self) -> None:
        reported = ""
        while not self._stop.wait(_SWEEP_S):
            try:
                self._sweep()
                reported = ""
            except AdonError as error:  # a full disk: tried again until it works, and said once
                if str(error) != reported:
                    reported = str(error)
                    _log.error("measurements are not followed: %s", error)
            except Exception:  # a fault of ours must not end it for good
                _log.exception("measurements are not followed")


class SilenceWatch:
    """Reports, once each, that an agent, a task or an archive has gone silent, and that it is heard
    again."""

    def __init__(
        self,
        sources: Sequence[Silent],
        listeners: Sequence[Callable[[News], object]],
        clock: Callable[[], float],
    ) -> None:
        self._sources, self._listeners, self._clock = sources, listeners, clock
        self._known: dict[str, News] = {}

    def problem(self) -> str:
        """Which are silent, "" for none."""
        return "; ".join(map(str, self._now().values()))

    def follow(self) -> None:
        """Report what has changed. To be called about once a second."""
        before, self._known = self._known, self._now()
        news = [self._known[name] for name in self._known.keys() - before.keys()]
        ended = before.keys() - self._known.keys()
        news += [replace(before[name], at=self._clock()) for name in ended]
        for new in news:
            _log.warning("%s", new)
            for take in self._listeners:
                take(new)

    def _now(self) -> dict[str, News]:
        return {
            name: News(name, f"is silent: {why}", at)
            for source in self._sources
            for name, (at, why) in source().items()
        }


def make(around: PartContext) -> MonitoringPart:
    """The part. Raises InputError for tasks that cannot be meant, Infeasible where they do not fit
    all together, and an AdonError if its file cannot be used."""
    from monitors.api import agents
    from monitors.api import measuring as measuring_api
    from monitors.measurements.agent_registry import AgentRegistry
    from monitors.measurements.coordinator import Coordinator
    from monitors.measurements.probes.disks import DiskPeriods
    from monitors.measurements.run_store import MeasuringStore, SharedTasks
    from monitors.measurements.tasks import Infeasible

    settings, topology = around.settings, around.topology
    registry = registry_of(settings, topology)
    _need_keys(around)
    store = MeasuringStore(_file(around))
    shared = None
    if around.store is not None and around.store.shared:
        shared = SharedTasks(around.store)
    try:
        coordinator = Coordinator(
            AgentRegistry(agents_of(settings).values()), registry, store, around.archive,
            around.rules, around.clock, around.broker, candidate_paths_of(settings),
            shared,
        )  # fmt: skip
    except Infeasible as error:
        store.close()
        raise Infeasible(f"monitoring.tasks: {error}", error.tasks) from None
    except BaseException:
        store.close()
        raise
    around.silent.append(coordinator.silent)
    watch = SilenceWatch(around.silent, around.broker.link_listeners, around.clock)
    around.broker.other_problems.append(watch.problem)
    return MonitoringPart(
        routers=[
            agents.router(
                coordinator,
                around.clock,
                around.broker.report_connections,
                DiskPeriods(around.broker.disks, around.outbox).take_in,
                around.broker.report_sockets,
            ),
            measuring_api.router(
                coordinator, around.rules, around.keyring.principals, around.clock
            ),
        ],
        collectors=[measuring_api.RunMetrics(coordinator)] if settings.agents else [],
        services=(
            Sweeper(coordinator.take_over, partial(_follow, coordinator, watch), store.close),
        ),
    )


def _follow(coordinator: Coordinator, watch: SilenceWatch) -> None:
    watch.follow()
    coordinator.sweep()
    coordinator.follow_paths()
    coordinator.hold_paths()


def documented_routes() -> list[APIRouter]:
    """The part's routes without anything behind them: for the description of the service."""
    from monitors.api import agents
    from monitors.api import measuring as measuring_api

    nothing: Any = None
    return [
        agents.router(nothing, nothing, nothing, nothing, nothing),
        measuring_api.router(nothing, nothing, nothing, nothing),
    ]


def _need_keys(around: PartContext) -> None:
    """Raises InputError if an agent could not be told from anybody else."""
    if not around.keyring:
        return  # loopback alone, and everybody may do everything
    roles = {who.name: who.role for who in around.keyring.principals()}
    for agent in around.settings.agents:
        if roles.get(agent.name) is not Role.AGENT:
            raise InputError(
                f"monitoring.agents: {agent.name!r} has no token, expected one of that name with "
                "role agent in security.tokens ('adon broker token new --role agent')"
            )


def _file(around: PartContext) -> str:
    """Raises InputError if the file of an earlier version cannot be taken over."""
    state = around.state
    if not around.settings.agents or state == _MEMORY:
        return _MEMORY  # nothing is measured, so there is nothing to keep
    path = measuring_file(state, around.folder)
    try:
        take_over(path)
    except (OSError, sqlite3.Error) as error:
        raise InputError(
            f"{path.with_name(EARLIER)} cannot be given the name {path.name}: {error}"
        ) from None
    return str(path)


def measuring_file(state: str, folder: Path) -> Path:
    """``NAME.measuring.sqlite``: beside a broker's state where that is a file ``NAME.…``, in
    ``folder`` where it is a database ``NAME``."""
    if is_database_url(state):
        name = re.sub(r"[^\w.-]", "", database_name(state)) or "adon"
        return folder / f"{name}.measuring.sqlite"
    path = Path(state).absolute()
    return path.with_name(f"{path.stem}.measuring.sqlite")


def take_over(path: Path) -> bool:
    """Give the file of an earlier version, which is beside it, the name ``path``: whether it
    was done. The first broker that is started anew has it. Raises InputError while one of the
    earlier version runs, OSError, sqlite3.Error."""
    earlier = path.with_name(EARLIER)
    if path.exists() or not earlier.exists():
        return False
    with open_lock(Path(f"{earlier}.lock")) as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{earlier}: a broker of an earlier version has it, expected that one to be stopped"
            ) from None
        if not earlier.exists():  # another one was quicker
            return False
        with closing(sqlite3.connect(earlier)) as db:  # all of it into the one file
            db.execute("PRAGMA journal_mode = DELETE")
        earlier.rename(path)
    _log.warning("%s is %s from now on", earlier, path.name)
    return True
