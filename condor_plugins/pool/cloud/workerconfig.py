"""HTCondor's configuration of a machine that joins a pool for a while, and a cloud machine's user
data for cloud-init, as text: pure functions.

What runs on it may end after it was told to leave (``MAXJOBRETIREMENTTIME``), and one that nobody
has claimed for a while shuts down (``STARTD_NOCLAIM_SHUTDOWN``): so it leaves the pool even if
nobody ever tells it to.

A cloud machine's image has HTCondor as a distribution installs it, and a service ``condor``. The
user data can be read by every job that runs there (clouds serve it at 169.254.169.254):
it holds no more than a token that may advertise a machine, for as long as a boot takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from condor_plugins.pool.scaling import Flavour

WORKER_ATTRIBUTE = "AdonWorker"
"""In the ads of a machine's slots: its name."""
_UPDATE_S = 30.0  # a machine that drains tells that it has ended its last job no sooner
_PATIENCE_S = 86_400  # a job may run for a day after its machine was told to leave

CONFIG = "/etc/condor/config.d/99-adon.conf"
IDENTITY = "/etc/condor/config.d/99-adon-instance.conf"
TOKEN = "/etc/condor/tokens.d/adon"
_PORT = re.compile(r":\d+\Z")
AUTHORIZATIONS = ("ADVERTISE_STARTD", "ADVERTISE_MASTER", "READ")
# HTCondor tries for a minute to find its own name.
_NAME = (
    'getent hosts "$(hostname)" > /dev/null || '
    'echo "$(hostname -I | cut -d" " -f1) $(hostname)" >> /etc/hosts'
)
_INSTANCE = (
    """printf 'CloudInstanceId = "%s"\\n' "$(cat /var/lib/cloud/data/instance-id)" > """ + IDENTITY
)


@dataclass(frozen=True, slots=True)
class StartdSettings:
    """Where and how the machines run that are processes of this one.

    ``directory``    holds a folder for each; its file system must be this machine's own
    ``collector``    ``host:port`` of the pool
    ``flavours``     what may be started
    ``release``      where HTCondor is installed: below it sbin/condor_master
    ``token_file``   an IDTOKEN that may ADVERTISE_STARTD, ADVERTISE_MASTER and READ; None if
                     the pool takes this user without one (file system authentication)
    ``site``         the site whose jobs they take, as PegasusSite and AdonSite in their ads
    ``idle_s``       one without a claim for so long shuts down
    ``config``       settings of HTCondor that go before ours
    ``environment``  more variables for its daemons, which start with a clean environment
    """

    directory: Path
    collector: str
    flavours: Sequence[Flavour] = ()
    release: Path = Path("/usr")
    token_file: Path | None = None
    site: str = ""
    idle_s: float = 600.0
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def execute_node(
    collector: str, name: str, site: str, idle_s: float, attributes: Sequence[str] = ()
) -> dict[str, str]:
    """The machine ``name`` of the pool of a collector (``host:port``), which it joins by a token:
    one partitionable slot for the jobs of ``site``, "" for any. ``attributes`` are more settings
    for its ads."""
    own = {**site_attributes(site), WORKER_ATTRIBUTE: name}
    return {
        "CONDOR_HOST": _PORT.sub("", collector),
        "COLLECTOR_HOST": collector,
        "SEC_DEFAULT_AUTHENTICATION": "REQUIRED",
        "SEC_DEFAULT_AUTHENTICATION_METHODS": "IDTOKENS, FS",
        "SEC_DEFAULT_INTEGRITY": "REQUIRED",
        "SEC_DEFAULT_ENCRYPTION": "PREFERRED",
        "ALLOW_READ": "*",
        **{key: f'"{value}"' for key, value in own.items()},
        "STARTD_ATTRS": " ".join(("$(STARTD_ATTRS)", *own, *attributes)),
        **staying(idle_s),
        "DAEMON_LIST": "MASTER, STARTD",
        "START": "True",
        # The whole machine; what a job does not ask for is there for others.
        "SLOT_TYPE_1": "100%",
        "SLOT_TYPE_1_PARTITIONABLE": "True",
        "NUM_SLOTS": "1",
        "NUM_SLOTS_TYPE_1": "1",
    }


def site_attributes(site: str) -> dict[str, str]:
    """Attributes of slots whose jobs are those of a site, "" for any."""
    return {"PegasusSite": site, "AdonSite": site} if site else {}


def staying(idle_s: float) -> dict[str, str]:
    """How long a machine stays: jobs may end, and without a claim it shuts down."""
    return {
        "SUSPEND": "False",
        "PREEMPT": "False",
        "KILL": "False",
        "WANT_SUSPEND": "False",
        "MAXJOBRETIREMENTTIME": str(_PATIENCE_S),
        "SHUTDOWN_GRACEFUL_TIMEOUT": str(_PATIENCE_S),
        "STARTD_NOCLAIM_SHUTDOWN": str(math.ceil(idle_s)),
        # The startd looks whether it is time for that when it updates its ads.
        "UPDATE_INTERVAL": str(math.ceil(min(_UPDATE_S, max(5.0, idle_s / 2)))),
        "RUNBENCHMARKS": "False",
    }


def worker_config(settings: StartdSettings, flavour: Flavour, name: str) -> str:
    """For a ``condor_master`` with one startd. It is self-contained: neither this machine's own
    HTCondor settings nor a user's are read."""
    tokens, home = str(settings.directory / "tokens.d"), settings.directory / name
    return text(
        {
            **_release(settings.release),
            "LOCAL_DIR": str(home),
            **{part: f"$(LOCAL_DIR)/{part.lower()}" for part in ("LOG", "SPOOL", "LOCK", "RUN")},
            "EXECUTE": "$(LOCAL_DIR)/execute",
            "LOCAL_CONFIG_FILE": "",
            "LOCAL_CONFIG_DIR": "",
            "REQUIRE_LOCAL_CONFIG_FILE": "False",
            "USER_CONFIG_FILE": "",
            "USE_SHARED_PORT": "False",
            "SEC_TOKEN_DIRECTORY": tokens,
            "SEC_TOKEN_SYSTEM_DIRECTORY": tokens,
            # No signing key is there: who has its files cannot make tokens of the pool.
            "SEC_PASSWORD_DIRECTORY": str(home / "keys"),
            "SEC_TOKEN_POOL_SIGNING_KEY_FILE": str(home / "keys/POOL"),
            **execute_node(settings.collector, name, settings.site, settings.idle_s),
            "STARTD_NAME": name,
            "NUM_CPUS": str(flavour.cores),
            "MEMORY": str(flavour.memory_mb),
            **settings.config,
        }
    )


def _release(release: Path) -> dict[str, str]:
    """HTCondor's own folders; distribution packages and its archive lay them out differently."""

    def first(*names: str) -> str:
        paths = (release / name for name in names)
        return str(next((p for p in paths if p.is_dir()), release / names[-1]))

    return {
        "RELEASE_DIR": str(release),
        "BIN": str(release / "bin"),
        "SBIN": str(release / "sbin"),
        "LIB": first("lib/condor", "lib64/condor", "lib"),
        "LIBEXEC": first("libexec/condor", "lib/condor/libexec", "libexec"),
        "SHARE": first("share/condor", "share"),
    }


def text(values: Mapping[str, str]) -> str:
    """Settings as a file of HTCondor's."""
    return "".join(f"{key} = {value}\n" for key, value in values.items())


@dataclass(frozen=True, slots=True)
class ExecuteNode:
    """What all execute nodes of a pool have in common.

    ``collector``  ``host:port`` of the pool, as machines of the cloud reach it
    ``site``       the site whose jobs they take, as PegasusSite and AdonSite in their ads
    ``idle_s``     one that nobody has claimed for so long shuts HTCondor down
    ``config``     settings of HTCondor that go after ours, such as UID_DOMAIN
    ``commands``   are run first, by a shell: what installs HTCondor, mounts a file system
    """

    collector: str
    site: str = ""
    idle_s: float = 600.0
    config: Mapping[str, str] = field(default_factory=dict)
    commands: Sequence[str] = ()


def user_data(node: ExecuteNode, name: str, token: str) -> str:
    """For the machine ``name``. Doing it twice does it once."""
    config = {
        **execute_node(node.collector, name, node.site, node.idle_s, ("CloudInstanceId",)),
        **node.config,
    }
    files = {
        "write_files": [
            {"path": CONFIG, "content": text(config)},
            {"path": TOKEN, "permissions": "0600", "content": f"{token}\n"},
        ],
        "runcmd": [
            *([["sh", "-c", command] for command in node.commands]),
            ["sh", "-c", _NAME],
            ["sh", "-c", _INSTANCE],
            # An image may have started it before this was written. The boot continues meanwhile:
            # waiting for a service that waits for the end of the boot would never end.
            ["systemctl", "--no-block", "restart", "condor"],
        ],
    }
    return "#cloud-config\n" + yaml.safe_dump(files, sort_keys=False)


def boot_token(run: Callable[[Sequence[str]], str], lifetime_s: int, identity: str = "") -> str:
    """A new token of the pool that may advertise a machine for ``lifetime_s``.

    A machine that has joined stays, since its session with the collector outlives the token (a day,
    by HTCondor's default). With ``identity`` (``worker@pool``) it is signed here, by a process that
    can read the pool's signing key; without, the collector gives one to the caller, under its own
    name.

    :param run: runs a program of HTCondor's and returns what it writes.
    """
    rights = [word for right in AUTHORIZATIONS for word in ("-authz", right)]
    command = ["condor_token_create", "-identity", identity] if identity else ["condor_token_fetch"]
    return run([*command, *rights, "-lifetime", str(lifetime_s)]).strip()
