"""From the configuration to a broker and everything around it, not started yet."""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.config.sections import Config, ControllerConfig, LimitsConfig
from network_provisioner.base.controller import Controller
from network_provisioner.base.errors import AdonError, InputError, MissingError, printable
from network_provisioner.base.private import read_secret
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.graph import Path as NetworkPath
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from monitors.archive.archive import Archive
    from monitors.archive.knowledge import Listed
    from monitors.archive.outbox import Outbox
    from monitors.base.estimates import Estimate
    from network_provisioner.api.app import Registries
    from network_provisioner.base.model import Transit
    from network_provisioner.broker import Broker
    from network_provisioner.controllers.shaping.shapes import Shaper
    from network_provisioner.queries import TransitRecorder
    from network_provisioner.selection.limits import BrokerLimits
    from network_provisioner.selection.transit import Metric, Worsening
    from network_provisioner.templates.advice import PathFigures
    from network_provisioner.templates.registry import TemplateRegistry
    from network_provisioner.transits.tuning import FiguresOf

_INSPECT_S = 5.0  # that a database is asked how switches are configured
_KNOWN_S = 5.0  # each request asks about all its paths, and most ask about the same
_PATHS_KEPT = 4096
_SITES_KEPT = 256
_ANOMALIES_READ = 100  # of one subject


def make_controller(
    config: ControllerConfig,
    topology: Topology,
    clock: Callable[[], float] = time.time,
) -> Controller:
    """The driver that the configuration names; ``clock`` gives Unix seconds, and leases end by it.

    Raises InputError, and MissingError for no tc.
    """
    if config.driver == "simulated":
        from network_provisioner.controllers.simulated import SimulatedController

        return SimulatedController(topology, clock)
    if config.driver == "openflow":
        from network_provisioner.controllers.openflow.driver import OpenFlowController
        from network_provisioner.controllers.shaping.ovsdb import insecure_bridges
        from network_provisioner.controllers.shaping.shapes import CommandRunner

        shaper, unused = _shapers(config, topology)
        return OpenFlowController(
            topology,
            config.listen,
            shaper,
            unused=unused,
            clock=clock,
            bandwidth=config.bandwidth,
            watch=config.watch,
            inspect=partial(insecure_bridges, CommandRunner(config.exec, _INSPECT_S)),
        )
    if config.driver == "opendaylight":
        from network_provisioner.controllers.opendaylight.driver import OpenDaylightController
        from network_provisioner.controllers.restconf import Access

        access = Access(config.url, config.user, _password(config), ca_file=config.ca)
        shaper, unused = _shapers(config, topology)
        return OpenDaylightController(
            topology,
            access,
            shaper,
            unused=unused,
            clock=clock,
            bandwidth=config.bandwidth,
            watch=config.watch,
        )
    return _foreign(config, topology)


def _shapers(
    config: ControllerConfig, topology: Topology
) -> tuple[Shaper | None, Sequence[Shaper]]:
    """What keeps the rates, and what an earlier configuration may have kept them by."""
    from network_provisioner.controllers.shaping.htb import TcShaper
    from network_provisioner.controllers.shaping.ovsdb import VsctlShaper
    from network_provisioner.controllers.shaping.shapes import CommandRunner

    run = CommandRunner(config.exec)
    shapers: dict[str, Shaper] = {"tc": TcShaper(run), "ovs-vsctl": VsctlShaper(run)}
    if config.bandwidth in ("meter", "none"):
        return None, list(shapers.values())
    tool, package = "tc", "iproute2"
    if config.bandwidth == "queue":
        tool, package = "ovs-vsctl", "openvswitch-switch"
    program = [*config.exec, tool][0]
    if any(link.devices for link in topology.links) and shutil.which(program) is None:
        # Said before the switches are waited for.
        raise MissingError(
            f"{program}: found no such program, expected it for the rates of the links that name "
            f"devices; it is in the Debian package {package}"
        )
    return shapers.pop(tool), list(shapers.values())


def _password(config: ControllerConfig) -> str:
    if not config.password_file:
        raise InputError("controller: found no password_file, expected the file with the password")
    return read_secret(Path(config.password_file), "a password")


def _foreign(config: ControllerConfig, topology: Topology) -> Controller:
    """A driver from elsewhere, ``package.module:Class``, called with topology and options: see
    docs/writing-a-driver.md."""
    module, _, name = config.driver.partition(":")
    where = f"controller.driver: {config.driver}"
    try:
        driver = getattr(import_module(module), name)
    except Exception as error:  # whatever its code does when it is imported
        raise InputError(f"{where}: {_said(error)}, expected a class to import") from error
    if not callable(driver):
        raise InputError(f"{where}: found {type(driver).__name__}, expected a class")
    try:
        made: Controller = driver(topology, **config.options)
    except AdonError:
        raise
    except TypeError as error:
        raise InputError(f"{where}: {_said(error)}; it takes topology and options") from error
    except Exception as error:
        raise InputError(f"{where} cannot be made: {_said(error)}") from error
    # Drivers written before there was `clear` take everything off when they stop.
    needed = (name for name in vars(Controller) if not name.startswith("_") and name != "clear")
    lacking = [name for name in needed if not callable(getattr(made, name, None))]
    if lacking:
        raise InputError(f"{where} has no {lacking[0]}(), expected a Controller")
    return made


def _said(error: Exception) -> str:
    """What foreign code said, in one line; its kind where that says more."""
    text = printable(" ".join(str(error).split()))
    return (
        text
        if isinstance(error, ImportError | AttributeError | TypeError)
        else (f"{type(error).__name__}: {text}")
    )


class Learning:
    """A recorder that also has templates learn from what it records."""

    def __init__(self, recorder: TransitRecorder, templates: TemplateRegistry) -> None:
        self._recorder = recorder
        self._templates = templates

    def record(self, transit: Transit) -> None:
        """Raises what the recorder or the store raises, once both were asked."""
        try:
            self._recorder.record(transit)
        finally:
            self._templates.learn(transit)


def limits_of(config: LimitsConfig) -> BrokerLimits:
    """The broker's limits: those configured, the others as they are."""
    from network_provisioner.selection.limits import BrokerLimits

    given: dict[str, Any] = {
        "reservable": config.reservable,
        "max_lease_s": config.max_lease,
        "unsized_lease_s": config.unsized_lease,
        "max_paths": config.max_paths,
        "aging_s": config.aging,
        "quotas": config.quotas,
    }
    known = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(BrokerLimits(), **known)


def measured_paths(
    archive: Archive, topology: Topology, clock: Callable[[], float] = time.time
) -> Callable[[NetworkPath, str], dict[str, Metric]]:
    """Look up what was measured of a path, by a user's own transfers and by those that all believe,
    and which anomalies made it worse, as it was up to :data:`_KNOWN_S` ago."""
    from monitors.alerts.anomalies.model import METRIC, worsening
    from monitors.archive.estimate_sources import UserArchive
    from monitors.archive.knowledge import Listed, path_metrics
    from network_provisioner.controllers.routes import default_path
    from network_provisioner.selection.transit import Metric, Worsening

    default = lru_cache(_PATHS_KEPT)(partial(default_path, topology))
    kept: dict[tuple[tuple[str, ...], str], dict[str, tuple[Estimate, Worsening | None]]] = {}
    sources: dict[str, Listed] = {}
    since = -math.inf

    def worsened(source: Listed, known: Estimate) -> Worsening | None:
        if known.subject not in source.subjects(METRIC):
            return None
        recorded = archive.query(METRIC, known.subject, newest=True, limit=_ANOMALIES_READ)
        anomaly = worsening(known.metric, recorded)
        return (
            None if anomaly is None else Worsening(anomaly.since, anomaly.noticed, anomaly.before)
        )

    def lookup(path: NetworkPath, user: str) -> dict[str, Metric]:
        nonlocal since
        now = clock()
        if not 0 <= now - since < _KNOWN_S:
            since = now
            kept.clear()
            sources.clear()
        known = kept.get((path.nodes, user))
        if known is None:
            usual = default(path.nodes[0], path.nodes[-1])
            source = sources.setdefault(user, Listed(UserArchive(archive, {user})))
            is_default = usual is not None and usual.nodes == path.nodes
            metrics = path_metrics(source, path.nodes, is_default, now)
            known = {name: (metric, worsened(source, metric)) for name, metric in metrics.items()}
            kept[path.nodes, user] = known
        return {
            name: Metric(metric.value, "measured", metric.age_s(now), change)
            for name, (metric, change) in known.items()
        }

    return lookup


def measured_figures(
    archive: Archive, topology: Topology, clock: Callable[[], float] = time.time
) -> FiguresOf:
    """Look up what transfers over a path are tuned by, as it was up to :data:`_KNOWN_S` ago."""
    from monitors.archive.estimate_sources import UserArchive
    from monitors.archive.knowledge import Listed
    from monitors.archive.tuning import figures
    from network_provisioner.controllers.routes import default_path

    @lru_cache(_PATHS_KEPT)
    def lookup(path: NetworkPath, user: str, _: float) -> PathFigures:
        usual = default_path(topology, path.nodes[0], path.nodes[-1])
        source = Listed(UserArchive(archive, {user}))
        return figures(source, path, usual is not None and usual.nodes == path.nodes, clock())

    return lambda path, user: lookup(path, user, clock() // _KNOWN_S)


def measured_best_effort(
    archive: Archive, clock: Callable[[], float] = time.time
) -> Callable[[str, str, str], tuple[float, float] | None]:
    """Look up what transfers without a path of their own reached between two sites, a user's own
    and those that all believe: bit/s and the age in seconds, or None."""

    from monitors.archive.estimate_sources import UserArchive
    from monitors.archive.knowledge import path_throughput
    from monitors.archive.transfers import BEST_EFFORT

    def lookup(src: str, dst: str, user: str) -> tuple[float, float] | None:
        now = clock()
        estimate = path_throughput(UserArchive(archive, {user}), src, dst, BEST_EFFORT, now)
        return (estimate.value, now - estimate.at) if estimate else None

    return lookup


def known_disks(archive: Archive) -> Callable[[str, str, str], float | None]:
    """Look up what the disk of a site was found to take of an application, bit/s, or None."""
    from monitors.archive.knowledge import disk_rate

    def lookup(site: str, way: str, application: str) -> float | None:
        rate = disk_rate(archive.estimate, site, way, application, time.time())
        return rate.value if rate else None

    return lookup


def measured_space(
    archive: Archive, clock: Callable[[], float] = time.time
) -> Callable[[str], tuple[float, float] | None]:
    """Look up what agents found to be free at a site, bytes, and its age in seconds, or None; as it
    was up to :data:`_KNOWN_S` ago."""
    from monitors.archive.estimate_sources import UserArchive
    from monitors.archive.knowledge import LIVE_S, free_space

    source = UserArchive(archive, ())

    @lru_cache(_SITES_KEPT)
    def measured(site: str, _: float) -> Estimate | None:
        return free_space(source, site, clock(), LIVE_S, last=1)

    def lookup(site: str) -> tuple[float, float] | None:
        now = clock()
        known = measured(site, now // _KNOWN_S)
        return None if known is None else (known.value, known.age_s(now))

    return lookup


def make_broker(config: Config, outbox: Outbox) -> tuple[Broker, Registries]:
    """A broker as configured, not started yet, and its registries.

    Raises InputError, MissingError, StoreError; then nothing is left open.
    """
    from monitors.archive.transfers import Recorder
    from network_provisioner.api.app import Registries
    from network_provisioner.base.clock import SteadyClock
    from network_provisioner.base.database_url import is_database_url
    from network_provisioner.broker import Broker
    from network_provisioner.policies.registry import PolicyRegistry
    from network_provisioner.stores.opening import open_store
    from network_provisioner.templates.data import templates_from_dict
    from network_provisioner.templates.registry import TemplateRegistry
    from network_provisioner.templates.sitepolicy import policy_from_dict

    archive = outbox.archive
    topology = topology_from_dict(config.topology)
    shared = is_database_url(config.broker.state)
    # Other brokers, on machines whose clocks nobody set, read the same leases.
    clock = SteadyClock(follows=not shared)
    controller = make_controller(config.controller, topology, clock)
    store = open_store(config.broker.state, clock)
    try:
        registries = Registries(
            PolicyRegistry(topology, store),
            TemplateRegistry(
                templates_from_dict(config.templates),
                store,
                policy_from_dict(config.template_policy),
            ),
            store,
        )
        recorder = Learning(Recorder(outbox), registries.templates)
        broker = Broker(
            topology,
            registries.templates,
            controller,
            store,
            recorder,
            measured_paths(archive, topology),
            clock=clock,
            limits=limits_of(config.limits),
            policies=registries.policies,
            best_effort_of=measured_best_effort(archive),
            disk_rate_of=known_disks(archive),
            figures_of=measured_figures(archive, topology),
            space_of=measured_space(archive),
        )
    except BaseException:
        store.close()
        raise
    return broker, registries
