"""``adon doctor``: what this machine, its configuration and its broker have and lack."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.options import credentials
from adon.cli.output import Column, note, print_records
from adon.cli.parsing import Noun, add_output, config, flag
from adon.machine import box
from adon.machine.service_account import as_broker, service_user
from network_provisioner.base import account
from network_provisioner.base.database_url import is_database_url
from network_provisioner.base.errors import AdonError, printable
from network_provisioner.base.instants import local_time

if TYPE_CHECKING:
    from adon.config.sections import Config
    from network_provisioner.client.broker import BrokerClient

_PACKAGES = ("htcondor", "os-ken", "pegasus-wms.api", "pegasus-wms.worker")
_COMMON = ("networkx", "numpy", "PyYAML", "pydantic", "fastapi", "uvicorn", "psycopg")
_PROGRAMS = ("condor_master", "globus-gridftp-server", "globus-url-copy", "bwa", "samtools")
_DISK_BYTES = 2e9
_ASKED_S = 5.0
_MOST_WARNINGS = 20
_KEPT = {"state": "broker's state", "archive": "archive of measurements"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing looked at. ``needed`` is False if the line continues without it."""

    what: str
    found: str
    ok: bool
    needed: bool = True
    advice: str = ""


def findings(config: Path | None = None) -> Iterator[CheckResult]:
    """Everything the line needs or can use, in the order it is used. What only the examples need is
    not required where a configuration is checked."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield CheckResult(
        "Python 3.11 or later", version, sys.version_info >= (3, 11),
        advice="install python3.11 or later and make .venv with it",
    )  # fmt: skip
    yield from _python_packages()
    planner = shutil.which("pegasus-plan")
    yield CheckResult(
        "pegasus-plan", planner or "not on PATH", planner is not None, False,
        "the embedded planner is used; install Pegasus to use its own",
    )  # fmt: skip
    yield from plug_in()
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    apt = shutil.which("apt-get")
    yield CheckResult(
        "apt-get (private copies of HTCondor, GridFTP and tools)",
        apt or "not on PATH", apt is not None, config is None and bool(absent),
        f"use Debian 12 or later, or put {', '.join(absent)} on PATH"
        if absent else "not needed: all programs are on PATH",
    )  # fmt: skip
    setpriv = shutil.which("setpriv")
    yield CheckResult(
        "setpriv", setpriv or "not on PATH", setpriv is not None, config is None,
        "apt-get install util-linux",
    )  # fmt: skip
    yield _network()
    yield _disk(config is None)
    if config is not None:
        yield from _configured(config)


def plug_in() -> Iterator[CheckResult]:
    """Whether a planner that is told to load the plug-in finds it."""
    from pegasus_hooks.install.home import PROPERTIES, home_on_path
    from pegasus_hooks.install.parts import names_plugin, whole_jar
    from pegasus_hooks.plugin import JAR_NAME, SELECTOR_PROPERTY, SITE_SELECTOR_CLASS

    path: Path | str | None = "_" + SELECTOR_PROPERTY.replace(".", "__").upper()
    if os.environ.get(str(path)) != SITE_SELECTOR_CLASS:
        path = None
    try:
        home = home_on_path()
        files = (home.properties, account.home() / ".pegasusrc", Path(PROPERTIES))
        path = next((file for file in files if names_plugin(file)), path)
    except AdonError:  # no planner, or nothing that it could read
        return
    if path is None:
        return
    listed = [Path(entry) for entry in os.environ.get("CLASSPATH", "").split(":")]
    jars = [home.java / JAR_NAME, *(jar for jar in listed if jar.name == JAR_NAME)]
    whole = next((jar for jar in jars if whole_jar(jar)), None)
    yield CheckResult(
        f"the planner plug-in that {path} names",
        f"no intact {' or '.join(map(str, jars))}: pegasus-plan cannot run"
        if whole is None
        else str(whole),
        whole is not None,
        advice="install it again: adon install pegasus, with the same options as before",
    )


def _python_packages() -> Iterator[CheckResult]:
    from importlib import metadata

    def installed(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    for package in _PACKAGES:
        version = installed(package)
        yield CheckResult(
            f"Python package {package}", version or "not found", version is not None,
            advice=f"pip install {package}",
        )  # fmt: skip
    absent = [package for package in _COMMON if installed(package) is None]
    yield CheckResult(
        f"Python packages {', '.join(_COMMON)}",
        "installed" if not absent else f"without {', '.join(absent)}", not absent,
        advice=f"pip install {' '.join(absent)}",
    )  # fmt: skip


def _network() -> CheckResult:
    reason = box.can_box()
    return CheckResult(
        "real network in namespaces", reason or "possible", reason is None, False,
        "the network is simulated instead",
    )  # fmt: skip


def _disk(needed: bool) -> CheckResult:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or account.home() / ".cache").absolute()
    place = next(p for p in (cache, *cache.parents) if p.is_dir())
    free = shutil.disk_usage(place).free
    return CheckResult(
        f"2 GB of disk for programs in {cache}", f"{free / 1e9:.1f} GB free", free > _DISK_BYTES,
        needed, "free some space, or name another folder in XDG_CACHE_HOME",
    )  # fmt: skip


def _configured(file: Path) -> Iterator[CheckResult]:
    """What the configuration names, or what is wrong in it."""
    from adon.config.adon_yml import load_config, used_files

    try:
        config = load_config(file)
    except AdonError as error:
        yield CheckResult("the configuration", str(error), False, advice=f"correct {file}")
        return
    yield from (_kept(config, file, key) for key in _KEPT)
    # Files that lie about and may be taken for those that are used.
    for line in used_files(config, file):
        if line.startswith("warning: "):
            yield CheckResult("one archive, one state", line, False, False)
    yield from _leader(config)
    yield from _followed(config, file)
    yield from _slow(config)
    yield from _running(config)
    yield from _bridges(config)


def _bridges(config: Config) -> Iterator[CheckResult]:
    """What Open vSwitch's settings of the topology's switches would cost."""
    from network_provisioner.controllers.shaping.ovsdb import bridge_warnings
    from network_provisioner.controllers.shaping.shapes import CommandRunner
    from network_provisioner.topology.data import topology_from_dict

    if config.controller.driver == "simulated":
        return
    dpids = {node.dpid for node in topology_from_dict(config.topology).nodes.values() if node.dpid}
    for warning in bridge_warnings(CommandRunner(config.controller.exec), dpids):
        yield CheckResult("the switches", f"warning: {warning}", False, False)


def _kept(config: Config, file: Path, key: str) -> CheckResult:
    """Whether the broker could keep its state, or measurements, where the configuration says."""
    from monitors.archive.archive import Archive

    what = f"the {_KEPT[key]} in {file}"
    try:
        where = getattr(config.broker, key)
        actual, works = (
            _database(where) if is_database_url(where) else _file(file, Path(where), key == "state")
        )
        if key == "archive":
            with Archive(where, read_only=True) as archive:  # another program's is refused
                if works and (faults := archive.faults()):
                    actual, works = f"{archive.shown}: {faults}", False
    except (AdonError, OSError) as error:
        actual, works = str(error), False
    return CheckResult(what, actual, works, advice=f"correct broker.{key}: docs/{key}.md")


def _leader(config: Config) -> Iterator[CheckResult]:
    """Whether requests could be forwarded to the broker that leads on the same database."""
    from adon.config.security import trust_of
    from network_provisioner.api.forward import reach
    from network_provisioner.stores.postgres import leader_address

    if not is_database_url(config.broker.state):
        return
    with contextlib.suppress(AdonError):  # reported already
        if address := leader_address(str(config.broker.state)):
            problem = reach(address, trust_of(config.security.tls))
            yield CheckResult(
                "the broker that leads on the database", f"{address} {problem or 'answers'}",
                not problem, advice="correct broker.address there, or security.tls.brokers here",
            )  # fmt: skip


def _followed(config: Config, file: Path) -> Iterator[CheckResult]:
    """Whose homes the broker cannot read, where it is to follow the workflows of all users."""
    from monitors.workflows.discovery import cannot_read, unread_homes
    from monitors.workflows.service import ALL

    if config.monitoring is None or ALL not in config.monitoring.workflows:
        return
    try:
        with as_broker(file, Path(config.broker.archive)) as user:
            closed = unread_homes()
    except OSError:  # reported already
        return
    yield CheckResult(
        f"workflows of all users, for {user}",
        cannot_read(closed) if closed else "all homes can be read", not closed, False,
        "let these users run 'adon monitor run --mine --keep --broker', or give the broker's "
        "service the capability CAP_DAC_READ_SEARCH",
    )  # fmt: skip


def _running(config: Config) -> Iterator[CheckResult]:
    """What is wrong with the network and the broker now."""
    from network_provisioner.client.broker import bad_answer

    what = "the broker"
    try:
        broker = _broker(config)
        what = f"the broker at {broker.url}"
        health = broker.health()
        with bad_answer(broker.url, "health"):
            results = list(_health(what, health))
    except AdonError as error:  # it may run elsewhere, or later
        problem = str(error).removeprefix(f"{what} ")
        results = [CheckResult(what, problem, False, False, "the state of the network is unknown")]
    yield from results


def _health(what: str, health: Mapping[str, Any]) -> Iterator[CheckResult]:
    """What the broker says of itself and its switches. Raises KeyError, TypeError if that is
    something else."""
    if health["status"] == "ok":
        unknown = health.get("links_unknown")
        status = f"ok; it cannot watch the links {', '.join(unknown)}" if unknown else "ok"
        yield CheckResult(what, status, True)
        return
    yield CheckResult(what, f"degraded: {health['problem']}", False)
    for switch in health["switches"]:
        if switch["problem"]:
            since = f" since {local_time(switch['since'])}" if switch["since"] else ""
            passed = f"transits that pass it: {switch['transits']}"
            yield CheckResult(switch["label"], f"{switch['problem']}{since}, {passed}", False)


def _broker(config: Config) -> BrokerClient:
    """The broker of a configuration. Raises AdonError."""
    from adon.config.adon_yml import broker_of
    from network_provisioner.client.broker import BrokerClient

    if url := os.environ.get("ADON_BROKER"):
        return BrokerClient(url, _ASKED_S, *credentials())
    return broker_of(config, _ASKED_S)


def _slow(config: Config) -> Iterator[CheckResult]:
    """What makes transfers slower than the network is: ceilings of templates, and what the broker
    warns of live transits, where it runs and tells this user."""
    from network_provisioner.base.model import LIVE
    from network_provisioner.selection.terms import small_ceiling
    from network_provisioner.templates.data import templates_from_dict
    from network_provisioner.topology.data import topology_from_dict

    problems: list[str] = []
    with contextlib.suppress(AdonError):  # reported already
        most_bps = topology_from_dict(config.topology).largest_bps
        templates = templates_from_dict(config.templates).values()
        problems += filter(None, (small_ceiling(template, most_bps) for template in templates))
        live = (t for t in _broker(config).list() if t.state in LIVE)
        problems += [warning for t in live for warning in t.grant.warnings]
    for warning in islice(dict.fromkeys(problems), _MOST_WARNINGS):
        yield CheckResult("transfers as fast as the network", f"warning: {warning}", False, False)


def _database(url: str) -> tuple[str, bool]:
    from network_provisioner.stores.postgres import MOST_SKEW_S, TIME, skew_s
    from network_provisioner.stores.postgres_link import PostgresConnection

    link = PostgresConnection(url)
    try:
        version = link.rows("SHOW server_version", {})[0][0]
        link.rows("CREATE TEMPORARY TABLE adon_doctor AS SELECT 1", {})  # it takes writes
        if link.rows("SELECT to_regclass('adon_meta')", {})[0][0] is not None:
            link.rows("UPDATE adon_meta SET change = change", {})
        before = time.time()
        ahead_s = skew_s(before, link.rows(f"SELECT {TIME}", {})[0][0], time.time())
    finally:
        link.close()
    if abs(ahead_s) > MOST_SKEW_S:
        direction = "ahead of" if ahead_s > 0 else "behind"
        return (
            f"{link.shown}: this machine's clock is {abs(ahead_s):.1f} s {direction} its clock",
            False,
        )
    return f"{link.shown} answers: PostgreSQL {version}", True


def _file(config: Path, path: Path, is_state: bool) -> tuple[str, bool]:
    from network_provisioner.stores.sqlite import faults

    with as_broker(config, path) as user:
        problem, folder = f"{path} cannot be written by {user}", path.parent
        try:
            nearest = next(p for p in (path, *path.absolute().parents) if p.exists())
            if not os.access(nearest, os.W_OK, effective_ids=True):
                return problem, False
            folder = nearest if nearest.is_dir() else nearest.parent
            with tempfile.TemporaryFile(dir=folder) as trial:
                trial.write(bytes(1 << 16))
                trial.flush()
                os.fsync(trial.fileno())
        except OSError as error:
            return f"{problem}: {folder}: {error.strerror}", False
        if is_state and path.exists() and (problems := faults(path)):
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            return f"{path}: {'; '.join(problems[:3])}{more}", False
    return f"{path} can be written by {user}", True


NOUN = Noun("doctor")


@NOUN.command(
    config("also check this configuration (default: ./adon.yml, if it exists)", None),
    flag(
        "--fix",
        "first create missing folders of state and archive, and close both to other users",
    ),
    add_output,
)
def _run(args: argparse.Namespace) -> int:
    """Check what this machine has and lacks, and say how to get it.

    'MISSING' marks what is required. 'without' marks what is optional, and says what happens
    instead.

    Exit codes: 0 nothing required is missing; 1 something is.
    """
    file = args.config or (Path("adon.yml") if Path("adon.yml").is_file() else None)
    if args.fix and file is not None:
        _fix(file)
    results = list(findings(file))
    healthy = all(f.ok or not f.needed for f in results)
    rows = [asdict(f) for f in results]
    columns = [*map(Column, ("what", "found", "ok", "needed", "advice"))]
    document = {"healthy": healthy, "findings": rows}
    print_records(args, columns, rows, document=document, text=lambda _: _text(results, healthy))
    return 0 if healthy else 1


def _fix(file: Path) -> None:
    """Make the folders of state and archive that are missing, for the user of the package's
    services, and close both files to others, where they are ours. Raises OSError."""
    from adon.config.adon_yml import load_config

    try:
        config = load_config(file)
    except AdonError:  # reported as a finding
        return
    user = service_user(file)
    kept = (config.broker.state, config.broker.archive)
    for path in dict.fromkeys(Path(place) for place in kept if not is_database_url(place)):
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
            os.chown(path.parent, -1 if user is None else user.pw_uid, -1)
            note(f"made the folder {path.parent}")
        if not path.exists():
            continue
        status = path.stat()
        if status.st_mode & 0o077 and os.geteuid() in (0, status.st_uid):
            path.chmod(status.st_mode & 0o700)
            note(f"closed {path} to others")


def _text(results: Sequence[CheckResult], healthy: bool) -> str:
    lines = []
    for f in results:
        mark = "ok     " if f.ok else "MISSING" if f.needed else "without"
        advice = f"  ({f.advice})" if not f.ok and f.advice else ""
        lines.append(f"{mark}  {printable(f'{f.what}: {f.found}{advice}')}")
    lines.append("nothing required is missing" if healthy else "what is MISSING is required")
    return "\n".join(lines)
