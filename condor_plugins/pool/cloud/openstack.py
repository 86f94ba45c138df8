"""Machines of a pool from an OpenStack, by openstacksdk and clouds.yaml.

Servers carry the tag ``adon:<pool>``, their flavour and the pool's collector as metadata, and the
name that was chosen for them; a port that is made for a server's quality of service has the
server's name, and tag and collector as its description. Each has to say so itself: older versions
of the compute API, and proxies, ignore filters. Neutron lets no tenant delete a port before its
server is gone: until then, and where a request was never followed by its server, it is told as a
machine that has ENDED, and goes when that is deleted.

Nothing is tried again in here: a request that failed may have been carried out, so that the caller
that asked lists first; and a cloud that says when to come back may say an hour. For requests that
are safe, clouds.yaml may set ``compute_status_code_retries`` and the like.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from threading import Lock
from typing import Any

import keystoneauth1.exceptions as keystone
import openstack
import openstack.exceptions as sdk
from keystoneauth1.discover import version_to_string

from condor_plugins.pool.cloud.protocol import CloudError, Refusal, Server
from condor_plugins.pool.scaling import Flavour, MachineState
from network_provisioner.base.errors import InputError

_POLICY = "soft-anti-affinity"
_FLAVOUR, _COLLECTOR = "adon_flavour", "adon_collector"
_VERSION = (2, 52)
"""Of the compute API, whatever clouds.yaml says: servers have tags from their creation on. Below
2.26 Nova reports no tags, and ignores the filter by them."""
_QUOTA = re.compile("quota|exceed|limit|no more ip addresses", re.IGNORECASE)
"""What Nova says with 403, and Neutron with 409."""
_TRANSIENT = (408, 413, 425, 429)
"""413 is what Nova's old rate limits answer."""
_LOOK = {
    "flavour": ("compute", "find_flavor"),
    "image": ("image", "find_image"),
    "network": ("network", "find_network"),
    "key": ("compute", "find_keypair"),
    "qos_policy": ("network", "find_qos_policy"),
    "security_group": ("network", "find_security_group"),
    "group": ("compute", "find_server_group"),
}
_STATES = {
    "BUILD": MachineState.BOOTING,
    "ERROR": MachineState.ERROR,
    **dict.fromkeys(
        ("SHUTOFF", "SUSPENDED", "SHELVED", "SHELVED_OFFLOADED", "DELETED", "SOFT_DELETED"),
        MachineState.ENDED,
    ),
}
"""Any other is a running machine to whom something happens, or of whom nothing is known now."""


@dataclass(frozen=True, slots=True)
class OpenStackSettings:
    """Names of what is in the cloud.

    ``cloud``            in clouds.yaml
    ``pool``             whose machines they are, for the tag: letters, digits, and any of _.-
    ``collector``        of the pool: machines that have another one belong to somebody else's pool
                         of the same name; "" for any
    ``prices``           by flavour: what a machine of it costs per hour
    ``image``            with HTCondor and cloud-init
    ``network``          from which the pool's collector can be reached
    ``key``              a key pair for its administrators, "" for none
    ``security_groups``  of its ports; those of the project where there are none
    ``group``            a server group, made with soft anti-affinity where it is not there: its
                         servers share a host only where they have to. One of which the pool's head
                         node is a member, too, keeps workers away from it. "" for none
    ``qos_policy``       an existing policy for a port that is made for each server, "" for none
    ``zone``             an availability zone, "" for any
    ``timeout_s``        for an answer of the cloud
    ``life_s``           after which a machine is drained: its token was for its boot, and HTCondor
                         ends its session with the collector after a day
    ``boots``            by flavour: ``boot_s`` and ``boot_spread_s``, where they are known
    """

    cloud: str
    pool: str
    prices: Mapping[str, float]
    image: str
    network: str
    collector: str = ""
    key: str = ""
    security_groups: Sequence[str] = ()
    group: str = ""
    qos_policy: str = ""
    zone: str = ""
    timeout_s: float = 60.0
    life_s: float = 72_000.0
    boots: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,50}", self.pool):
            raise InputError(
                f"pool: found {self.pool!r}, expected letters, digits and any of _.- (at most 50)"
            )


class OpenStackCloud:
    """See :class:`condor_plugins.pool.cloud.protocol.Cloud`.

    :param user_data: what a machine of a flavour and a name gets told when it boots.
    :param connect: makes a client; None connects to the cloud of the settings.
    """

    def __init__(
        self,
        settings: OpenStackSettings,
        user_data: Callable[[Flavour, str], str],
        connect: Callable[[], Any] | None = None,
    ) -> None:
        self._settings = settings
        self._user_data = user_data
        self._connect = connect or self._from_clouds_yaml
        self._tag = f"adon:{settings.pool}"
        self._description = f"{self._tag} {settings.collector}".rstrip()  # of ports
        self._client: Any = None
        self._found: dict[tuple[str, str], Any] = {}
        self._one_group = Lock()

    def check(self) -> None:
        """The same."""
        settings = self._settings
        try:
            self.flavours()
            self._find("image", settings.image)
            self._find("network", settings.network)
            if settings.key:
                self._find("key", settings.key)
            if settings.qos_policy:
                self._find("qos_policy", settings.qos_policy)
            for group in settings.security_groups:
                self._find("security_group", group)
            if settings.group:
                self._check_group(settings.group)
        except CloudError as error:
            if error.why in (Refusal.CREDENTIALS, Refusal.REFUSED):
                raise InputError(str(error)) from error
            raise

    def flavours(self) -> Sequence[Flavour]:
        """The same. Raises InputError for one that is not there."""
        prices, boots = self._settings.prices, self._settings.boots
        if not prices:
            raise InputError(f"{self._called()}: found no flavours, expected names with prices")
        rows = [
            (self._find("flavour", name), price, boots.get(name, {}))
            for name, price in prices.items()
        ]
        return [Flavour(row.name, row.vcpus, row.ram, price, **boot) for row, price, boot in rows]

    def machines(self) -> Sequence[Server]:
        """The same."""
        with self._as_cloud_error("list servers"):
            servers = list(self._servers())
            listed = [_machine(server, self._settings.life_s) for server in servers]
            known = {machine.name for machine in listed}
            alone = [port for port in self._ports() if port.name not in known]
        listed += [
            Server(
                port.name, "", MachineState.ENDED, _seconds(port.created_at), error="only its port"
            )
            for port in alone
        ]
        return listed

    def start(self, flavour: str, name: str) -> None:
        """The same."""
        kind = next((f for f in self.flavours() if f.name == flavour), None)
        if kind is None:
            raise InputError(f"flavour: found {flavour!r}, expected one that has a price")
        with self._as_cloud_error(f"start {name}"):
            if list(self._servers(name)):
                return
        settings = self._settings
        data = self._user_data(kind, name)
        server_request: dict[str, Any] = {
            "name": name,
            "flavor_id": self._find("flavour", flavour).id,
            "image_id": self._find("image", settings.image).id,
            "user_data": base64.b64encode(data.encode()).decode(),
            "tags": [self._tag],
            "metadata": {_FLAVOUR: flavour, _COLLECTOR: settings.collector},
        }
        if settings.key:
            server_request["key_name"] = settings.key
        if settings.zone:
            server_request["availability_zone"] = settings.zone
        if settings.security_groups and not settings.qos_policy:
            server_request["security_groups"] = [
                {"name": group} for group in settings.security_groups
            ]
        if settings.group:
            server_request["scheduler_hints"] = {"group": self._group()}
        with self._as_cloud_error(f"start {name}"):
            server_request["networks"] = [self._card(name)]
            try:
                self._api.compute.create_server(**server_request)
            except sdk.ForbiddenException as error:
                # A group has ten members as clouds come. What it is for is a wish, the machine is
                # not.
                if "scheduler_hints" not in server_request or "in group" not in str(error):
                    raise
                del server_request["scheduler_hints"]
                self._api.compute.create_server(**server_request)

    def delete(self, name: str) -> None:
        """The same."""
        with self._as_cloud_error(f"delete {name}"):
            servers = list(self._servers(name))
            for server in servers:
                self._api.compute.delete_server(server, ignore_missing=True)
            for port in [] if servers else self._ports(name):
                if not port.device_id:
                    self._api.network.delete_port(port, ignore_missing=True)

    # -- within ------------------------------------------------------------------------------

    @property
    def _api(self) -> Any:
        if self._client is None:
            client = self._connect()
            endpoint = client.compute.get_endpoint_data()
            latest = endpoint.max_microversion if endpoint else None
            if latest and latest < _VERSION:
                raise CloudError(
                    f"{self._called()}: found compute API {version_to_string(latest)}, expected "
                    f"{version_to_string(_VERSION)} or later: servers of earlier ones have no tags",
                    Refusal.REFUSED,
                )
            client.compute.default_microversion = version_to_string(_VERSION)
            self._client = client
        return self._client

    def _from_clouds_yaml(self) -> Any:
        return openstack.connect(
            cloud=self._settings.cloud,
            app_name="adon",
            app_version=version("adon-wms"),
            api_timeout=self._settings.timeout_s,
        )

    def _called(self) -> str:
        return f"cloud {self._settings.cloud}"

    @contextmanager
    def _as_cloud_error(self, what: str) -> Iterator[None]:
        """Errors of the client's two families as ours."""
        try:
            yield
        except (sdk.SDKException, keystone.ClientException) as error:
            raise _refusal(f"{self._called()}: {what}", error) from error

    def _find(self, kind: str, name: str) -> Any:
        """What the cloud has under a name or an id. Raises InputError if there is no such
        thing."""
        item = self._look(kind, name)
        if item is None:
            raise InputError(f"{self._called()}: found no {_words(kind)} {name!r}, expected one")
        return item

    def _look(self, kind: str, name: str) -> Any:
        """The same, None if there is none. It is asked for once: an id stays what it is."""
        if (kind, name) in self._found:
            return self._found[kind, name]
        service, method = _LOOK[kind]
        with self._as_cloud_error(f"find {_words(kind)} {name}"):
            try:
                item = getattr(getattr(self._api, service), method)(name, ignore_missing=False)
            except sdk.NotFoundException:
                return None
            except sdk.DuplicateResource:
                raise InputError(
                    f"{self._called()}: found more than one {_words(kind)} {name!r}, "
                    "expected its id"
                ) from None
        self._found[kind, name] = item
        return item

    def _check_group(self, name: str) -> None:
        """One that is not there is made with the first server."""
        group = self._look("group", name)
        policy = group.policy or next(iter(group.policies or ()), "") if group else _POLICY
        if "anti-affinity" not in policy:
            raise InputError(
                f"{self._called()}: found policy {policy!r} of server group {name!r}, "
                f"expected {_POLICY}"
            )

    def _group(self) -> str:
        name = self._settings.group
        with self._one_group:  # of two with one name none could be used
            group = self._look("group", name)
            if group is None:
                with self._as_cloud_error(f"make server group {name}"):
                    group = self._api.compute.create_server_group(name=name, policy=_POLICY)
                self._found["group", name] = group
        return str(group.id)

    def _card(self, name: str) -> dict[str, str]:
        settings = self._settings
        network = self._find("network", settings.network).id
        if not settings.qos_policy:
            return {"uuid": network}
        # One of an earlier attempt is as good.
        for port in self._ports(name):
            return {"port": port.id}
        more = {}
        if settings.security_groups:
            groups = settings.security_groups
            more["security_group_ids"] = [self._find("security_group", g).id for g in groups]
        made = self._api.network.create_port(
            network_id=network,
            name=name,
            description=self._description,
            qos_policy_id=self._find("qos_policy", settings.qos_policy).id,
            **more,
        )
        return {"port": made.id}

    def _servers(self, name: str = "") -> Iterator[Any]:
        """Ours, those of this name where one is given: the cloud finds it in longer ones, too."""
        collector = self._settings.collector
        wanted = {"name": name} if name else {}
        for server in self._api.compute.servers(tags=self._tag, **wanted):
            whose = (server.metadata or {}).get(_COLLECTOR)
            if self._tag not in (server.tags or ()) or name not in ("", server.name):
                continue
            if not whose or not collector or whose == collector:
                yield server

    def _ports(self, name: str = "") -> list[Any]:
        """Ports that were made for servers of ours; before collectors were noted, by the tag."""
        if not self._settings.qos_policy:
            return []
        ours = [self._description, self._tag]
        wanted = {"name": name} if name else {}
        ports = self._api.network.ports(description=ours, **wanted)
        return [p for p in ports if p.description in ours and name in ("", p.name)]


def _words(kind: str) -> str:
    return "server group" if kind == "group" else kind.replace("_", " ")


def _machine(server: Any, life_s: float) -> Server:
    state = _STATES.get(server.status, MachineState.RUNNING)
    if server.task_state == "deleting":
        state = MachineState.ENDED
    fault = (server.fault or {}).get("message", "") if state is MachineState.ERROR else ""
    addresses = [row["addr"] for rows in (server.addresses or {}).values() for row in rows]
    since = _seconds(server.created_at)
    return Server(
        server.name,
        str((server.metadata or {}).get(_FLAVOUR, "")),
        state,
        since,
        next(iter(addresses), ""),
        fault,
        since + life_s,
    )


def _seconds(text: str | None) -> float:
    """Unix seconds of what a cloud writes: UTC, with or without saying so."""
    if not text:
        return 0.0
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _refusal(what: str, error: Exception) -> CloudError:
    """An error of the client's as ours: one line, and what can be done about it."""
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None) or 0
    details = " ".join(str(getattr(error, "details", None) or error).split())
    after = _retry_after(error) if isinstance(error, sdk.HttpException) else 0.0
    if status in _TRANSIENT or status >= 500 or isinstance(error, keystone.ConnectionError):
        why = Refusal.BUSY
    elif status == 401 or isinstance(error, (keystone.ClientException, sdk.ConfigException)):
        # Keystone's own answers are given when logging in: an application credential that was
        # revoked is not found, and what clouds.yaml lacks is a bad request.
        why = Refusal.CREDENTIALS
    elif status in (403, 409) and _QUOTA.search(details):
        why = Refusal.QUOTA
    else:
        why = Refusal.CONFLICT if status == 409 else Refusal.REFUSED
    code = f" ({status})" if status and str(status) not in details else ""
    return CloudError(f"{what}: {details[:300]}{code}", why, after)


def _retry_after(error: sdk.HttpException) -> float:
    """Seconds; a date instead, which is allowed, and nonsense count as nothing."""
    response = getattr(error, "response", None)
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return float(text) if text.isdecimal() else 0.0
