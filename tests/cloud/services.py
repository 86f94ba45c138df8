"""Running services of an OpenStack, in a box (:mod:`adon.machine.box`): nothing outlives it.

Keystone, Placement, Glance, Neutron and Nova with two compute hosts, each unchanged but for Nova's
virt driver (``machines.py``), whose machines are processes. Their state is in the box's memory; it
begins as an archive in the cache, which the first start of a version makes: databases, users, a
catalogue, an image, flavours and a network.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import shutil
import signal
import sys
import tarfile
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Self

import openstack
import yaml

from adon.machine import box
from adon.machine.cached import Progress
from examples.testbed import netns
from examples.testbed.procs import Daemon, run
from network_provisioner.base.errors import AdonError, MissingError
from tests.cloud import machine, settings

HERE = Path(__file__).resolve().parent
HOSTS = ("node1", "node2")
CLOUD, ADMIN = "tenant", "admin"
"""Names in clouds.yaml: a member of a project of its own, and who may do all."""
IMAGE, NETWORK, SUBNET = "worker", "workers", "10.81.0.0/24"
GATEWAY = "10.81.0.1"
"""The box's own address in that network."""
FLAVOURS = {
    "small": (1, 512), "large": (4, 4096), "huge": (64, 10**6),
    "hanging": (1, 512), "broken": (1, 512),
}  # fmt: skip
"""Cores and MB by name. No host has room for "huge"; see ``machines.py`` for the last two."""
_ADDRESS = "02:ad:0e:00:00:01"
# That a machine is gone is seen in seconds.
_NEIGHBOURS = {
    "base_reachable_time_ms": 1000, "delay_first_probe_time": 1, "retrans_time_ms": 300,
    "ucast_solicit": 2, "mcast_solicit": 2,
}  # fmt: skip
_READY_S = 180.0


class OpenStack:
    """The services of one cloud, as a context manager or by :meth:`start` and :meth:`stop`.

    :param programs: what ``assembly.ensure`` returned.
    :param run_dir: gets the logs, and clouds.yaml.
    :param condor: what ``packages.ensure("condor")`` returned.
    """

    def __init__(self, programs: Path, run_dir: Path, condor: Path, progress: Progress) -> None:
        self._programs = programs
        self._python = str(programs / "bin/python")
        self._logs = run_dir / "openstack"
        self._condor = condor
        self._progress = progress
        self._state = box.private_dir() / "openstack"
        self._daemons: dict[str, Daemon] = {}
        self.clouds_file = run_dir / "clouds.yaml"

    def start(self) -> None:
        """Start all with fresh state, and return when they answer. Raises MissingError outside a
        box, AdonError with the last words of a service that ends."""
        if not box.inside():
            raise MissingError("OpenStack's services use fixed ports: start them in a box only")
        began = time.monotonic()
        self._logs.mkdir(parents=True, exist_ok=True)
        self.clouds_file.write_text(yaml.safe_dump({"clouds": clouds()}))
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(self.clouds_file)
        shutil.rmtree(self._state, ignore_errors=True)
        self._write_settings()
        with contextlib.suppress(AdonError):
            # One without an address of its own takes a port's, and another when that goes.
            netns.batch(None, [f"link add {machine.BRIDGE} address {_ADDRESS} type bridge"])
        netns.batch(
            None,
            [f"addr replace {GATEWAY}/24 dev {machine.BRIDGE}", f"link set {machine.BRIDGE} up"],
        )
        for name, value in _NEIGHBOURS.items():
            Path(f"/proc/sys/net/ipv4/neigh/{machine.BRIDGE}/{name}").write_text(f"{value}\n")
        archive = self._programs / f"state-{_key()}.tar.gz"
        if archive.exists():
            with tarfile.open(archive) as packed:
                packed.extractall(self._state, filter="tar")
            self._start_all()
        else:
            self._progress("OpenStack: making databases and accounts (half a minute, once)")
            self._make_databases()
            self._launch("keystone")
            make_accounts(self.connect(ADMIN))
            self._start_all()
            make_content(self.connect(ADMIN), self.connect(CLOUD))
            self.stop()
            self._pack(archive)
            self._start_all()
        self._progress(f"OpenStack: ready after {time.monotonic() - began:.0f} s")

    def stop(self) -> None:
        """End all; machines go on until the box ends."""
        for daemon in self._daemons.values():
            daemon.stop(0.0)
        self._daemons.clear()

    def connect(self, cloud: str) -> Any:
        """A client of :data:`CLOUD` or :data:`ADMIN`."""
        return openstack.connect(cloud=cloud)

    def send(self, service: str, number: signal.Signals) -> None:
        """Signal a service."""
        self._daemons[service].send(number)

    def check(self) -> None:
        """Raise AdonError if a service has ended."""
        for daemon in self._daemons.values():
            daemon.check()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- within ------------------------------------------------------------------------------

    def _write_settings(self) -> None:
        for part in ("db", "glance/images", "machines"):
            (self._state / part).mkdir(parents=True)
        (self._state / "log").symlink_to(self._logs)
        for name, text in settings.files(self._state, self._programs).items():
            path = self._state / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        # Nova refuses to start a host anew that has lost this file; its content is not used here.
        (self._state / "nova/compute_id").write_text(str(uuid.uuid4()))
        for name in ("nova/api-paste.ini", "glance/glance-api-paste.ini"):
            shutil.copyfile(self._programs / "etc" / name, self._state / name)

    def _make_databases(self) -> None:
        state, database = self._state, f"sqlite:///{self._state}/db"
        keystone = ["keystone-manage", "--config-file", f"{state}/keystone/keystone.conf"]
        nova = ["nova-manage", "--config-file", f"{state}/nova/nova.conf"]
        owner = ["--keystone-user", "root", "--keystone-group", "root"]
        steps = [
            [*keystone, "db_sync"],
            [*keystone, "fernet_setup", *owner],
            [*keystone, "credential_setup", *owner],
            [*keystone, "bootstrap", "--bootstrap-password", "admin",
             *(word for kind in ("admin", "public", "internal")
               for word in (f"--bootstrap-{kind}-url", settings.AUTH_URL)),
             "--bootstrap-region-id", "RegionOne"],
            ["placement-manage", "--config-file", f"{state}/placement/placement.conf",
             "db", "sync"],
            ["glance-manage", "--config-file", f"{state}/glance/glance-api.conf", "db_sync"],
            [str(HERE / "service.py"), "neutron-schema", f"{state}/db/neutron.db"],
            [*nova, "api_db", "sync"],
            [*nova, "cell_v2", "map_cell0", "--database_connection", f"{database}/nova_cell0.db"],
            [*nova, "db", "sync"],
            [*nova, "cell_v2", "create_cell", "--name", "cell1", "--transport-url", "fake://",
             "--database_connection", f"{database}/nova.db"],
        ]  # fmt: skip
        for program, *arguments in steps:
            # Joining to a whole path leaves it as it is.
            words = [self._python, str(self._programs / "bin" / program), *arguments]
            run(words, timeout_s=_READY_S, name=f"OpenStack: {Path(program).name} {arguments[-1]}")

    def _start_all(self) -> None:
        for name in settings.PORTS:
            if name not in self._daemons:
                self._launch(name, wait=False)
        for name in settings.PORTS:
            self._wait(name)

    def _launch(self, name: str, wait: bool = True) -> None:
        words = [str(HERE / "service.py"), name, str(settings.PORTS[name]), str(self._state)]
        # The machines run our own Python.
        ours = f"{sys.executable} -m tests.cloud.machine"
        self._daemons[name] = Daemon(
            [self._python, *words, ",".join(HOSTS)],
            self._logs / f"{name}.out",
            name=f"OpenStack's {name}",
            env={
                "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
                "ADON_MACHINES": str(self._state / "machines"),
                "ADON_MACHINE": ours,
                machine.CONDOR: str(self._condor),
            },
            cwd=HERE.parents[1],
            logs=[self._logs / f"{name}.log"],
        )
        if wait:
            self._wait(name)

    def _wait(self, name: str) -> None:
        self._daemons[name].wait(lambda: _answers(settings.url(name)), _READY_S)

    def _pack(self, archive: Path) -> None:
        draft = archive.with_suffix(f".{os.getpid()}")
        with tarfile.open(draft, "w:gz") as packed:
            for part in ("db", "glance/images", "keystone/fernet", "keystone/credential"):
                packed.add(self._state / part, part)
        draft.rename(archive)


def clouds() -> dict[str, Any]:
    """For clouds.yaml."""

    def one(user: str) -> dict[str, Any]:
        auth = {
            "auth_url": settings.AUTH_URL, "username": user, "password": user,
            "project_name": user, "user_domain_id": "default", "project_domain_id": "default",
        }  # fmt: skip
        return {"auth": auth, "region_name": "RegionOne"}

    return {name: one(name) for name in (CLOUD, ADMIN)}


def make_accounts(admin: Any) -> None:
    """Users and the catalogue."""
    identity = admin.identity
    service = identity.create_project(name="service", domain_id="default")
    roles = {role.name: role for role in identity.roles()}
    roles.setdefault("service", None)
    roles["service"] = roles["service"] or identity.create_role(name="service")
    tenant = identity.create_project(name=CLOUD, domain_id="default")
    users = [(name, settings.SERVICE_PASSWORD, service, ("admin", "service"))
             for name in settings.PORTS if name != "keystone"]  # fmt: skip
    users.append((CLOUD, CLOUD, tenant, ("member", "reader")))
    for name, password, project, given in users:
        user = identity.create_user(
            name=name, password=password, domain_id="default", default_project_id=project.id
        )
        for role in given:
            identity.assign_project_role_to_user(project, user, roles[role])
    kinds = {"nova": "compute", "glance": "image", "neutron": "network", "placement": "placement"}
    for name, kind in kinds.items():
        entry = identity.create_service(type=kind, name=name)
        where = settings.url(name) + ("/v2.1" if name == "nova" else "")
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(
                service_id=entry.id, interface=interface, url=where, region_id="RegionOne"
            )


def make_content(admin: Any, tenant: Any) -> None:
    """What a tenant finds in a cloud."""
    for name, (cores, memory_mb) in FLAVOURS.items():
        admin.compute.create_flavor(name=name, ram=memory_mb, vcpus=cores, disk=1)
    admin.create_image(
        IMAGE, data=bytes(65_536), disk_format="raw", container_format="bare",
        visibility="public", wait=True,
    )  # fmt: skip
    network = tenant.network.create_network(name=NETWORK)
    tenant.network.create_subnet(
        network_id=network.id, cidr=SUBNET, ip_version=4, enable_dhcp=False, gateway_ip=GATEWAY
    )


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _key() -> str:
    """Changes with whatever changes what the archive holds."""
    made_by = (settings, OpenStack._make_databases, make_accounts, make_content)
    text = "\n".join([*map(inspect.getsource, made_by), repr((FLAVOURS, SUBNET))])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
