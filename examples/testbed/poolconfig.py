"""HTCondor's configuration for the testbed's pool, as text: pure functions of values.

One collector, negotiator and schedd on the hub, and one startd per site. All run as the same user,
so they know each other by files only that user can make (FS) and by tokens of one signing key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.testbed.procs import MARK
from network_provisioner.base.errors import InputError

DOMAIN = "adon.test"
COLLECTOR_PORT = 9618  # HTCondor's registered port; in a box of its own nobody else has it
RESERVED = ("hub", "home", "secrets", "users")  # directories beside those of the sites
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}\Z")


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """An execute node, the only one of its site where no attribute names another.

    ``workers`` is N of the cost model: that many jobs run at once. ``address`` is where its daemons
    listen; ``netns`` is the network namespace they live in, None for this one. ``interface`` is the
    data-plane device whose traffic the startd reports. ``attributes`` are published in the slot ads
    as strings. ``settings`` are lines for the end of its configuration.
    """

    workers: int
    netns: str | None = None
    address: str = "127.0.0.1"
    interface: str = "lo"
    memory_mb: int = 1024
    attributes: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""

    def site(self, name: str) -> str:
        """The site of a node of this name."""
        return self.attributes.get("PegasusSite", name)


@dataclass(frozen=True, slots=True)
class FamilyPlace:
    """Where a family of daemons lives, in ``home``; ``release`` is HTCondor's /usr."""

    release: Path
    home: Path
    secrets: Path
    user: str


def check_sites(sites: Mapping[str, SiteSpec]) -> None:
    """Raises InputError for a site that HTCondor could not carry."""
    for name, spec in sites.items():
        if not _NAME.match(name) or name in RESERVED:
            raise InputError(
                f"site name: found {name!r}, expected small letters, digits and dashes,"
                f" and none of {', '.join(RESERVED)}"
            )
        if spec.workers < 1:
            raise InputError(f"site {name}: found {spec.workers} workers, expected at least 1")


def _common(place: FamilyPlace, name: str, address: str, collector: str) -> dict[str, str]:
    home = place.home
    return {
        "RELEASE_DIR": str(place.release),
        "LOCAL_DIR": str(home),
        "BIN": "$(RELEASE_DIR)/bin",
        "SBIN": "$(RELEASE_DIR)/sbin",
        "LIB": "$(RELEASE_DIR)/lib/condor",
        "LIBEXEC": "$(RELEASE_DIR)/libexec/condor",
        "SHARE": "$(RELEASE_DIR)/share/condor",
        "LOG": "$(LOCAL_DIR)/log",
        "SPOOL": "$(LOCAL_DIR)/spool",
        "EXECUTE": "$(LOCAL_DIR)/execute",
        "LOCK": "$(LOCAL_DIR)/lock",
        "RUN": "$(LOCAL_DIR)/run",
        # Neither the machine's nor the user's own HTCondor settings.
        "LOCAL_CONFIG_FILE": "",
        "LOCAL_CONFIG_DIR": "",
        "REQUIRE_LOCAL_CONFIG_FILE": "False",
        "USER_CONFIG_FILE": "",
        "CONDOR_HOST": collector.rpartition(":")[0],
        "COLLECTOR_HOST": collector,
        "NETWORK_INTERFACE": address,
        "BIND_ALL_INTERFACES": "False",
        "ENABLE_IPV6": "False",
        # The same machine plays every host: names come from here, never from a name server, which
        # a network namespace may not reach (each question then takes 10 s).
        "NO_DNS": "True",
        "DEFAULT_DOMAIN_NAME": DOMAIN,
        "NETWORK_HOSTNAME": f"{name}.{DOMAIN}",
        # Each daemon listens for itself. A shared port would need socket files, whose paths must
        # stay below 108 characters, and one more daemon per site.
        "USE_SHARED_PORT": "False",
        "UID_DOMAIN": DOMAIN,
        "FILESYSTEM_DOMAIN": DOMAIN,
        "TRUST_DOMAIN": DOMAIN,
        "MAIL": "/bin/true",
        "SENDMAIL": "/bin/true",
        "RUNBENCHMARKS": "False",
        "DISCARD_SESSION_KEYRING_ON_STARTUP": "False",
        # Jobs see the machine's own /tmp: a site's disks may be there, and Pegasus asks.
        "MOUNT_UNDER_SCRATCH": "",
        # Jobs of a killed run are found by the same mark as its daemons.
        "STARTER_JOB_ENVIRONMENT": quoted([f"{MARK}={place.home.parent}"]),
    }


def quoted(words: Sequence[str]) -> str:
    """Arguments or environment in HTCondor's quoted syntax, whatever is in them."""
    each = (word.replace("'", "''").replace('"', '""') for word in words)
    return '"' + " ".join(f"'{word}'" for word in each) + '"'


def _security(place: FamilyPlace) -> dict[str, str]:
    """One user runs everything; only that user may write, submit or join."""
    ours = f"{place.user}@{DOMAIN}"
    allowed = ("WRITE", "DAEMON", "NEGOTIATOR", "ADMINISTRATOR", "ADVERTISE_MASTER")
    also = ("ADVERTISE_STARTD", "ADVERTISE_SCHEDD", "CONFIG")
    return {
        "SEC_DEFAULT_AUTHENTICATION": "REQUIRED",
        "SEC_DEFAULT_AUTHENTICATION_METHODS": "FS, IDTOKENS",
        "SEC_DEFAULT_ENCRYPTION": "OPTIONAL",
        "SEC_DEFAULT_INTEGRITY": "REQUIRED",
        # 25.x clients bind FS to the channel, which 23.x daemons do not know.
        "SEC_FS_ENFORCE_CHANNEL_BINDING": "False",
        # A family is one master's; a site's startd takes the hub's collector on the same machine
        # for family, and is refused.
        "SEC_USE_FAMILY_SESSION": "False",
        "SEC_PASSWORD_DIRECTORY": str(place.secrets),
        "SEC_TOKEN_POOL_SIGNING_KEY_FILE": str(place.secrets / "POOL"),
        "SEC_TOKEN_SYSTEM_DIRECTORY": str(place.secrets / "tokens.d"),
        "ALLOW_READ": "*",
        **{f"ALLOW_{level}": ours for level in (*allowed, *also)},
    }


_HUB_TIMING = {
    # Submit to start in about a second: the defaults suit pools of thousands, not a demonstration.
    "SCHEDD_INTERVAL": "1",
    "SCHEDD_MIN_INTERVAL": "0",
    # At a new pool's first job schedd and negotiator would each wait for the other to authenticate,
    # 20 s and often 40. The negotiator comes every second by itself.
    "SCHEDD_SEND_RESCHEDULE": "False",
    "NEGOTIATOR_INTERVAL": "1",
    "NEGOTIATOR_MIN_INTERVAL": "0",
    "NEGOTIATOR_CYCLE_DELAY": "0",
    "NEGOTIATOR_UPDATE_INTERVAL": "5",
    "JOB_START_DELAY": "0",
    "JOB_START_COUNT": "50",
    "CLAIM_WORKLIFE": "3600",
    "SHADOW_QUEUE_UPDATE_INTERVAL": "5",
    "SHADOW_WORKLIFE": "3600",
    # Since 25.x a starter asks its shadow before it starts the job. A shadow that has not seen the
    # end of its own half of the input's transfer by then lets it ask again, after 5 s; many short
    # jobs wait for that. Otherwise it says to carry on, and here always.
    "GUIDANCE_KEEP_CALM_AND": "True",
    "JOB_DEFAULT_REQUESTMEMORY": "64",
    "JOB_DEFAULT_REQUESTDISK": "1024",
    "MAX_JOBS_SUBMITTED": "20000",
    # condor_q and the like give up after 20 s, and a machine that is busy may take those.
    "TOOL_TIMEOUT_MULTIPLIER": "3",
}

_DAGMAN = {
    "DAGMAN_USER_LOG_SCAN_INTERVAL": "1",
    "DAGMAN_SUBMIT_DELAY": "0",
    # A claim that is held idle for the next job of the DAG is looked at only every few seconds;
    # a slot that was given back is matched in the next cycle.
    "DAGMAN_HOLD_CLAIM_TIME": "0",
    "DAGMAN_MAX_SUBMITS_PER_INTERVAL": "100",
    "DAGMAN_USE_STRICT": "0",  # strict refuses node logs under a temporary directory
    "DAGMAN_SUPPRESS_NOTIFICATION": "True",
    # Times in job logs to the millisecond, with the date in full.
    "DEFAULT_USERLOG_FORMAT_OPTIONS": "ISO_DATE, SUB_SECOND",
}


def _text(values: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in values.items())


def hub_config(place: FamilyPlace, address: str, port: int) -> str:
    """The configuration of collector, negotiator and schedd, and of every client."""
    collector = f"{address}:{port}"
    return _text(
        {
            **_common(place, "hub", address, collector),
            **_security(place),
            **_HUB_TIMING,
            **_DAGMAN,
            "DAEMON_LIST": "MASTER, COLLECTOR, NEGOTIATOR, SCHEDD",
            "SCHEDD_NAME": f"hub@hub.{DOMAIN}",
            "COLLECTOR_ADDRESS_FILE": "$(LOG)/.collector_address",
            "SCHEDD_ADDRESS_FILE": "$(SPOOL)/.schedd_address",
            "COLLECTOR_UPDATE_INTERVAL": "5",
            "NEGOTIATOR_CONSIDER_PREEMPTION": "False",
            "LOCAL_UNIV_EXECUTE": "$(LOCAL_DIR)/local",
        }
    )


def site_config(place: FamilyPlace, name: str, site: SiteSpec, collector: str, metrics: str) -> str:
    """The configuration of one site's startd.

    :param collector: ``host:port`` of the hub's collector.
    :param metrics: settings by which the startd measures its host.
    """
    attributes = {"PegasusSite": name, **site.attributes}
    settings = _text(
        {
            **_common(place, name, site.address, collector),
            **_security(place),
            **{key: f'"{value}"' for key, value in attributes.items()},
            "DAEMON_LIST": "MASTER, STARTD",
            "STARTD_NAME": f"{name}.{DOMAIN}",
            "STARTD_ATTRS": f"$(STARTD_ATTRS) {' '.join(attributes)}",
            # Static slots: a claim is reused by the next job at once, with nothing to carve out.
            "NUM_CPUS": str(site.workers),
            "MEMORY": str(site.memory_mb * site.workers),
            "SLOT_TYPE_1": f"cpus=1, memory={site.memory_mb}",
            "SLOT_TYPE_1_PARTITIONABLE": "False",
            "NUM_SLOTS_TYPE_1": str(site.workers),
            "STARTD_ENFORCE_DISK_LIMITS": "False",
            "START": "True",
            "SUSPEND": "False",
            "PREEMPT": "False",
            "KILL": "False",
            "WANT_SUSPEND": "False",
            "WANT_VACATE": "False",
            "RANK": "0",
            "UPDATE_INTERVAL": "5",
            "STARTER_UPDATE_INTERVAL": "5",
            "STARTER_INITIAL_UPDATE_INTERVAL": "1",
            "STARTD_DETECT_GPUS": "",
            "DOCKER": "",
            "SINGULARITY": "",
            "ENABLE_SSH_TO_JOB": "False",
        }
    )
    return settings + metrics + site.settings
