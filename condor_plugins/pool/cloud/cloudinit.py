"""What makes a machine of a cloud an execute node: user data for cloud-init, as text.

Its image has HTCondor as a distribution installs it, and a service ``condor``. User data can be
read by every job that runs there (clouds answer at 169.254.169.254 whoever asks): it holds no more
than a token that may advertise a machine, for as long as a boot takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from condor_plugins.pool.cloud.workerconfig import execute_node, text

CONFIG = "/etc/condor/config.d/99-adon.conf"
IDENTITY = "/etc/condor/config.d/99-adon-instance.conf"
TOKEN = "/etc/condor/tokens.d/adon"
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
    told = {
        "write_files": [
            {"path": CONFIG, "content": text(config)},
            {"path": TOKEN, "permissions": "0600", "content": f"{token}\n"},
        ],
        "runcmd": [
            *([["sh", "-c", command] for command in node.commands]),
            ["sh", "-c", _NAME],
            ["sh", "-c", _INSTANCE],
            # An image may have started it before this was written. The boot goes on meanwhile:
            # waiting for a service that waits for the end of the boot would never end.
            ["systemctl", "--no-block", "restart", "condor"],
        ],
    }
    return "#cloud-config\n" + yaml.safe_dump(told, sort_keys=False)


def boot_token(run: Callable[[Sequence[str]], str], lifetime_s: int, identity: str = "") -> str:
    """A new token of the pool that may advertise a machine for ``lifetime_s``.

    A machine that has joined stays, since its session with the collector outlives the token (a day,
    as HTCondor comes). With ``identity`` (``worker@pool``) it is signed here, by who can read the
    pool's signing key; without, the collector gives one to who asks, under its own name.

    :param run: runs a program of HTCondor's and returns what it writes.
    """
    rights = [word for right in AUTHORIZATIONS for word in ("-authz", right)]
    words = ["condor_token_create", "-identity", identity] if identity else ["condor_token_fetch"]
    return run([*words, *rights, "-lifetime", str(lifetime_s)]).strip()
