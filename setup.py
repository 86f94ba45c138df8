"""Packaging of ADON. Tool settings live in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent


class BuildWithJar(build_py):
    """Puts the planner plug-in's jar into what is built. A checkout has none: its jar is built when
    it is asked for, and so is that of a wheel for which there was no JDK."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self._build_jar()

    def _build_jar(self):
        sys.path.insert(0, str(HERE))
        from adon.planning.jar import debian_compiler  # noqa: PLC0415
        from network_provisioner.base.errors import MissingError  # noqa: PLC0415
        from pegasus_hooks.plugin import JAR_NAME  # noqa: PLC0415
        from pegasus_hooks.plugin.build import build_jar  # noqa: PLC0415

        out = Path(self.build_lib).absolute() / "pegasus_hooks" / "plugin" / JAR_NAME
        try:
            build_jar(out, progress=print, find_compiler=debian_compiler)
        except MissingError as error:
            print(f"the planner plug-in's jar is left out: {error}", file=sys.stderr)


setup(
    name="adon-wms",
    version="0.1.0",
    description="Application-driven overlay networks for Pegasus and HTCondor workflows",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[
        "network_provisioner",
        "network_provisioner.api",
        "network_provisioner.base",
        "network_provisioner.client",
        "network_provisioner.controllers",
        "network_provisioner.controllers.opendaylight",
        "network_provisioner.controllers.openflow",
        "network_provisioner.controllers.shaping",
        "network_provisioner.policies",
        "network_provisioner.relay",
        "network_provisioner.selection",
        "network_provisioner.state",
        "network_provisioner.stores",
        "network_provisioner.templates",
        "network_provisioner.topology",
        "network_provisioner.transits",
        "monitors",
        "monitors.alerts",
        "monitors.alerts.anomalies",
        "monitors.alerts.notices",
        "monitors.api",
        "monitors.archive",
        "monitors.archive.retention",
        "monitors.archive.stores",
        "monitors.base",
        "monitors.jobs",
        "monitors.measurements",
        "monitors.measurements.agent",
        "monitors.measurements.perfsonar",
        "monitors.measurements.probes",
        "monitors.watcher",
        "monitors.workflows",
        "monitors.workflows.facts",
        "monitors.workflows.logs",
        "monitors.workflows.planned",
        "site_selector",
        "site_selector.catalogs",
        "site_selector.estimates",
        "site_selector.evaluation",
        "site_selector.explain",
        "site_selector.mapping",
        "site_selector.mapping.kernels",
        "site_selector.replicas",
        "pegasus_hooks",
        "pegasus_hooks.advance",
        "pegasus_hooks.install",
        "pegasus_hooks.planner",
        "pegasus_hooks.plugin",
        "pegasus_hooks.prepost",
        "pegasus_hooks.provisioning",
        "pegasus_hooks.tools",
        "condor_plugins",
        "condor_plugins.irods",
        "condor_plugins.jobs",
        "condor_plugins.pool",
        "condor_plugins.pool.cloud",
        "condor_plugins.pool.expander",
        "condor_plugins.startd",
        "condor_plugins.transfers",
        "condor_plugins.urls",
        "adon",
        "adon.cli",
        "adon.config",
        "adon.init",
        "adon.dashboard",
        "adon.machine",
        "adon.service",
        "adon.planning",
        "adon.report",
    ],
    package_data={
        "adon.dashboard": ["web/**/*"],
        "adon.report": ["*.css"],
        "adon.service": ["*.yml"],
        "pegasus_hooks.tools": ["*.sh", "bin/*", "python/*.py"],
        "pegasus_hooks.plugin": ["java/**/*.java", "signatures/**/*.java"],
    },
    cmdclass={"build_py": BuildWithJar},
    install_requires=[
        "networkx>=3.2",  # topology graphs and k shortest paths
        "numpy>=1.26",  # the cost model over jobs x sites as arrays
        "numba>=0.60",  # compiles the search for mappings and their simulation
        "PyYAML>=6.0",  # Pegasus catalogs and adon.yml, with line numbers for errors
        "typing_extensions>=4.8",  # typed dictionaries that pydantic reads on Python 3.11
        "pydantic>=2.6",  # adon.yml and REST bodies: validated, unknown keys rejected
        "fastapi>=0.110",  # REST API with its OpenAPI description
        "uvicorn>=0.29",  # serves the REST API
        "prometheus_client>=0.20",  # /metrics in the format that Prometheus scrapes
        "psycopg[binary]>=3.2",  # PostgreSQL, where several brokers share their state
        "rich>=13",  # tables and progress on a terminal
        "shtab>=1.7",  # completion in bash, zsh and tcsh
        "requests>=2.31",  # REST controllers (OpenDaylight) and the command line client
        "htcondor>=25.0",  # htcondor2 bindings: pool state, DAG submission, job logs
        "psutil>=6.0",  # how busy an agent's host is
        "os-ken>=4.0",  # OpenFlow 1.3 wire protocol, kept by OpenStack
        "pegasus-wms.api>=5.1",  # reads and writes abstract workflows and catalogs
        "pegasus-wms.worker>=5.1",  # pegasus-transfer, which moves the bytes
    ],
    extras_require={
        "parquet": ["pyarrow>=15"],  # measurements as Parquet files
        "federation": ["PyJWT[crypto]>=2.8"],  # login by OpenID Connect and SciTokens
        "openstack": ["openstacksdk>=4.0"],  # machines of a cloud as workers of a pool
        "irods": ["python-irodsclient>=3.0"],  # data of an iRODS zone, moved and listed
        "test": [
            "pyarrow>=15",  # the extra parquet, tested
            "PyJWT[crypto]>=2.8",  # the extra federation, tested
            "openstacksdk>=4.0",  # the extra openstack, tested
            "python-irodsclient>=3.0",  # the extra irods, tested
            "wsgidav>=4.3",  # a WebDAV server, whose files are listed and moved in tests
            "pytest>=8.0",
            "pytest-xdist>=3.6",  # unit tests side by side: many wait for a clock
            "pytest-timeout>=2.3",  # a hung component fails its test, not the run
            "hypothesis>=6.100",  # properties of every decision
            "schemathesis>=4.0",  # fuzzes every endpoint from its OpenAPI description
            "cryptography>=42",  # certificates for the tests of TLS
            "scipy>=1.11",  # linear programmes that decisions are compared with; nothing runs on it
            "httpx2>=2.0",  # the test client of FastAPI speaks through it
            "cobald>=0.14",  # its controller of a pool's size, which bench P9 compares with
            "mypy>=1.10",
            "ruff>=0.6",
            "types-psutil",
            "types-PyYAML",
            "types-requests",
        ],
    },
    entry_points={
        "console_scripts": ["adon = adon.cli.main:main"],
        "pegasus.monitord.plugins": ["adon = pegasus_hooks.monitord:AdonPlugin"],  # Pegasus 6
        "cobald.config.yaml_constructors": [
            "AdonController = condor_plugins.pool.expander.cobald:AdonController"
        ],
    },
)
