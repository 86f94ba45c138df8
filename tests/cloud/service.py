"""One service of an OpenStack, in the environment that has them: no module of ADON's is there.

    python service.py SERVICE PORT STATE [HOST,…]    serve it on loopback
    python service.py neutron-schema FILE            make Neutron's database

Nova is its API, its conductor and scheduler, and a compute service for each host, in one process.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any

MODULES = {
    "keystone": "keystone.wsgi.api",
    "placement": "placement.wsgi.api",
    "glance": "glance.wsgi.api",
    "neutron": "neutron.wsgi.api",
    "nova": "nova.wsgi.osapi_compute",
}
ONE_THREAD = ("placement", "neutron")
"""They open a second session inside a write: no immediate transactions, and one request a time."""


def use_sqlite(immediate: bool) -> None:
    """SQLite for a service with threads: a transaction that reads and then writes waits for the
    lock at its begin, instead of failing with "database is locked"."""
    from sqlalchemy import event  # noqa: PLC0415
    from sqlalchemy.engine import Engine  # noqa: PLC0415

    @event.listens_for(Engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        if type(connection).__module__.startswith("sqlite3"):
            connection.isolation_level = None
            for pragma in ("journal_mode=WAL", "busy_timeout=60000", "synchronous=OFF"):
                connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(Engine, "begin")
    def _begin(connection: Any) -> None:
        mark = "in_transaction"  # oslo.db's own listener looks at it, too
        if immediate and connection.dialect.name == "sqlite" and mark not in connection.info:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.info[mark] = True


def neutron_schema(file: str) -> None:
    """Neutron's migrations do not run on SQLite: make the tables of its models, as its own tests
    do."""
    from neutron.db.migration.models import head  # noqa: F401, PLC0415
    from neutron_lib.db import model_base  # noqa: PLC0415
    from sqlalchemy import create_engine  # noqa: PLC0415

    model_base.BASEV2.metadata.create_all(create_engine(f"sqlite:///{file}"))


def neutron_agents(hosts: list[str]) -> None:
    """A port is bound where an agent is known; these do nothing."""
    from neutron_lib import context  # noqa: PLC0415
    from neutron_lib.plugins import directory  # noqa: PLC0415
    from oslo_utils import timeutils  # noqa: PLC0415

    for host in hosts:
        agent = {
            "binary": "neutron-openvswitch-agent",
            "host": host,
            "topic": "N/A",
            "agent_type": "Open vSwitch agent",
            "start_flag": True,
            "configurations": {
                "tunnel_types": ["vxlan"],
                "tunneling_ip": "127.0.0.1",
                "bridge_mappings": {},
                "datapath_type": "system",
                "vhostuser_socket_dir": "/tmp",
            },
        }
        plugin = directory.get_plugin()
        plugin.create_or_update_agent(context.get_admin_context(), agent, timeutils.utcnow())


def nova_services(hosts: list[str]) -> list[Any]:
    """All but the API. They work as long as they are referred to."""
    import nova.virt  # noqa: PLC0415
    import os_vif  # noqa: PLC0415
    from nova import context, service  # noqa: PLC0415
    from nova.compute import rpcapi as compute  # noqa: PLC0415
    from nova.conductor import rpcapi as conductor  # noqa: PLC0415
    from nova.objects import host_mapping  # noqa: PLC0415
    from nova.scheduler import rpcapi as scheduler  # noqa: PLC0415
    from oslo_privsep import priv_context  # noqa: PLC0415

    priv_context.init(root_helper=["sudo"])
    os_vif.initialize()
    nova.virt.__path__.append(str(Path(__file__).parent))
    wanted: list[tuple[str, str, dict[str, str]]] = [
        ("nova-conductor", "api", {"topic": conductor.RPC_TOPIC}),
        ("nova-scheduler", "api", {"topic": scheduler.RPC_TOPIC}),
    ]
    topics = {"topic": compute.RPC_TOPIC, "topic_alt": compute.RPC_TOPIC_ALT}
    wanted += [("nova-compute", host, topics) for host in hosts]
    started = []
    for binary, host, more in wanted:
        record = service.Service.create(binary=binary, host=host, **more)
        record.start()
        started.append(record)
    host_mapping.discover_hosts(context.get_admin_context())
    return started


def serve(name: str, port: int, state: Path, hosts: list[str]) -> None:
    """Until it is killed."""
    os.environ["OS_KEYSTONE_CONFIG_DIR"] = str(state / "keystone")
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = str(state / "placement")
    os.environ["OS_GLANCE_CONFIG_DIR"] = str(state / "glance")
    os.environ["OS_NOVA_CONFIG_DIR"] = str(state / "nova")
    sys.argv = [f"{name}-api"]
    if name in ("neutron", "nova"):
        sys.argv += ["--config-file", str(state / name / f"{name}.conf")]
    if name == "nova":
        from nova import monkey_patch  # noqa: PLC0415

        monkey_patch.patch(backend="threading")
    use_sqlite(immediate=name not in ONE_THREAD)
    module = importlib.import_module(MODULES[name])
    if name == "neutron":
        neutron_agents(hosts)
    held = nova_services(hosts) if name == "nova" else []
    import waitress  # noqa: PLC0415

    waitress.serve(
        module.application,
        listen=f"127.0.0.1:{port}",
        threads=1 if name in ONE_THREAD else 8,
        connection_limit=900,  # each client of each test keeps some
        ident=None,
    )
    del held


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "neutron-schema":
        neutron_schema(words[1])
    else:
        try:
            serve(words[0], int(words[1]), Path(words[2]), [h for h in words[3].split(",") if h])
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # its other threads would go on
