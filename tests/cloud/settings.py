"""Configuration files of the services, as text: pure functions of values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ADDRESS = "127.0.0.1"
PORTS = {"keystone": 5000, "placement": 8778, "glance": 9292, "neutron": 9696, "nova": 8774}
"""In a box of its own nobody else has them."""
AUTH_URL = f"http://{ADDRESS}:{PORTS['keystone']}/v3"
SERVICE_PASSWORD = "service"
Sections = Mapping[str, Mapping[str, object]]


def url(service: str) -> str:
    """Where a service answers."""
    return f"http://{ADDRESS}:{PORTS[service]}"


def _as(user: str) -> dict[str, object]:
    """How a service logs in to the others."""
    return {
        "www_authenticate_uri": AUTH_URL,
        "auth_url": AUTH_URL,
        "auth_type": "password",
        "project_domain_id": "default",
        "user_domain_id": "default",
        "project_name": "service",
        "username": user,
        "password": SERVICE_PASSWORD,
        "region_name": "RegionOne",
    }


def files(state: Path, programs: Path) -> dict[str, str]:
    """By path below ``state``; ``programs`` is the environment of the services.

    A message bus and a database server are not needed: Nova's parts are one process
    (``transport_url = fake://``), and each service has a SQLite file.
    """
    database = f"sqlite:///{state}/db"
    keystone: Sections = {
        "DEFAULT": {"log_file": f"{state}/log/keystone.log"},
        "database": {"connection": f"{database}/keystone.db"},
        "token": {"provider": "fernet"},
        "fernet_tokens": {"key_repository": f"{state}/keystone/fernet"},
        "credential": {"key_repository": f"{state}/keystone/credential"},
        "identity": {"password_hash_rounds": 4},
        # Checking a token takes milliseconds instead of a third of a second.
        "cache": {"enabled": True, "backend": "dogpile.cache.memory"},
    }
    placement: Sections = {
        "DEFAULT": {"log_file": f"{state}/log/placement.log"},
        "api": {"auth_strategy": "keystone"},
        "placement_database": {"connection": f"{database}/placement.db"},
        "keystone_authtoken": _as("placement"),
    }
    glance: Sections = {
        "DEFAULT": {
            "log_file": f"{state}/log/glance.log",
            "enabled_backends": "images:file",
            "worker_self_reference_url": url("glance"),
        },
        "glance_store": {"default_backend": "images"},
        "images": {"filesystem_store_datadir": f"{state}/glance/images"},
        "database": {"connection": f"{database}/glance.db"},
        "keystone_authtoken": _as("glance"),
        "paste_deploy": {
            "flavor": "keystone",
            "config_file": f"{programs}/etc/glance/glance-api-paste.ini",
        },
    }
    neutron: Sections = {
        "DEFAULT": {
            "log_file": f"{state}/log/neutron.log",
            "state_path": f"{state}/neutron",
            "core_plugin": "ml2",
            "service_plugins": "qos",
            "api_paste_config": f"{programs}/etc/neutron/api-paste.ini",
            "transport_url": "fake://",
            "auth_strategy": "keystone",
            "agent_down_time": 10**6,
            "rpc_workers": 0,
            "notify_nova_on_port_status_changes": False,
            "notify_nova_on_port_data_changes": False,
            "dhcp_agent_notification": False,
        },
        "database": {"connection": f"{database}/neutron.db"},
        "oslo_concurrency": {"lock_path": f"{state}/neutron/lock"},
        "keystone_authtoken": _as("neutron"),
        "nova": _as("nova"),
        "placement": _as("placement"),
        "ml2": {
            "mechanism_drivers": "openvswitch",
            "type_drivers": "vxlan",
            "tenant_network_types": "vxlan",
            "extension_drivers": "port_security,qos",
        },
        "ml2_type_vxlan": {"vni_ranges": "1:1000"},
    }
    filters = ("Compute", "ComputeCapabilities", "ImageProperties")
    groups = ("ServerGroupAntiAffinity", "ServerGroupAffinity")
    nova: Sections = {
        "DEFAULT": {
            "log_file": f"{state}/log/nova.log",
            "state_path": f"{state}/nova",
            "transport_url": "fake://",
            "compute_driver": "machines.Machines",
            "host": "api",
            "osapi_compute_workers": 1,
            "enabled_apis": "osapi_compute",
            "vif_plugging_is_fatal": False,
            "vif_plugging_timeout": 0,
            "service_down_time": 10**9,  # the archive's hosts were heard of long ago
            "sync_power_state_interval": 2,
        },
        "api": {"auth_strategy": "keystone"},
        "wsgi": {"api_paste_config": f"{programs}/etc/nova/api-paste.ini"},
        "api_database": {"connection": f"{database}/nova_api.db"},
        "database": {"connection": f"{database}/nova.db"},
        "keystone_authtoken": _as("nova"),
        "placement": _as("placement"),
        "service_user": {"send_service_user_token": True, **_as("nova")},
        "neutron": {"service_metadata_proxy": False, **_as("neutron")},
        "glance": {"endpoint_override": url("glance")},
        "cinder": _as("nova"),
        "oslo_concurrency": {"lock_path": f"{state}/nova/lock"},
        "scheduler": {"workers": 1},
        "conductor": {"workers": 1},
        "filter_scheduler": {
            "enabled_filters": ",".join(f"{name}Filter" for name in (*filters, *groups)),
            # As clouds come, one failed build on a host outweighs a group's wish by a million.
            "build_failure_weight_multiplier": 0,
        },
        "workarounds": {"disable_fallback_pcpu_query": True},
    }
    return {
        "keystone/keystone.conf": text(keystone),
        "placement/placement.conf": text(placement),
        "glance/glance-api.conf": text(glance),
        "neutron/neutron.conf": text(neutron),
        "nova/nova.conf": text(nova),
    }


def text(sections: Sections) -> str:
    """Sections as an INI file."""
    lines = []
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in values.items())]
    return "\n".join(lines) + "\n"
