"""HTCondor's configuration of a worker that joins a pool for a while, as text: pure functions.

It stands alone: neither the machine's own HTCondor settings nor a user's are read. After its lease
(``START``) it takes no new job, what runs may end (``MAXJOBRETIREMENTTIME``), and one that nobody
has claimed for a while shuts down (``STARTD_NOCLAIM_SHUTDOWN``): so it leaves the pool even if
nobody ever tells it to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEMAND_ATTRIBUTE = "AdonExpansion"
"""In the ads of a worker's slots: the id of the demand that it serves."""
WORKER_ATTRIBUTE = "AdonWorker"
"""In the same ads: the worker's name."""
_UPDATE_S = 300.0  # HTCondor's own
_PATIENCE_S = 86_400  # a job may run for a day after its worker was told to leave


@dataclass(frozen=True, slots=True)
class StartdSettings:
    """Where and how workers run.

    ``directory``    holds a folder for each worker; its file system must be this machine's own
    ``collector``    ``host:port`` of the pool
    ``release``      where HTCondor is installed: below it sbin/condor_master and bin/condor_status
    ``token_file``   an IDTOKEN that may ADVERTISE_STARTD, ADVERTISE_MASTER and READ; None where
                     the pool takes this user without one (file system authentication)
    ``site``         the site whose jobs they take, as PegasusSite and AdonSite in their ads
    ``memory_mb``    memory of a slot where a demand names none
    ``idle_s``       a worker without a claim for so long shuts down
    ``config``       settings of HTCondor that go before ours
    ``environment``  more variables for its daemons, which start with a clean environment
    """

    directory: Path
    collector: str
    release: Path = Path("/usr")
    token_file: Path | None = None
    site: str = ""
    memory_mb: int = 1024
    idle_s: float = 600.0
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerShape:
    """A worker: ``slots`` static slots of ``cores`` and ``memory_mb`` each, for ``demand``, until
    ``until`` (Unix seconds)."""

    name: str
    demand: str
    slots: int
    cores: int
    memory_mb: int
    until: float


def _release(release: Path) -> dict[str, str]:
    """HTCondor's own folders; distribution packages and its archive lay them out differently."""

    def first(*names: str) -> str:
        found = (release / name for name in names)
        return str(next((p for p in found if p.is_dir()), release / names[-1]))

    return {
        "RELEASE_DIR": str(release),
        "BIN": str(release / "bin"),
        "SBIN": str(release / "sbin"),
        "LIB": first("lib/condor", "lib64/condor", "lib"),
        "LIBEXEC": first("libexec/condor", "lib/condor/libexec", "libexec"),
        "SHARE": first("share/condor", "share"),
    }


def joining(collector: str) -> dict[str, str]:
    """What lets a machine join the pool of a collector (``host:port``) by a token."""
    return {
        "CONDOR_HOST": collector.rpartition(":")[0],
        "COLLECTOR_HOST": collector,
        "SEC_DEFAULT_AUTHENTICATION": "REQUIRED",
        "SEC_DEFAULT_AUTHENTICATION_METHODS": "IDTOKENS, FS",
        "SEC_DEFAULT_INTEGRITY": "REQUIRED",
        "SEC_DEFAULT_ENCRYPTION": "PREFERRED",
        "ALLOW_READ": "*",
    }


def named(site: str) -> dict[str, str]:
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


def _common(settings: StartdSettings, home: Path) -> dict[str, str]:
    tokens = str(settings.directory / "tokens.d")
    return {
        **_release(settings.release),
        "LOCAL_DIR": str(home),
        **{part: f"$(LOCAL_DIR)/{part.lower()}" for part in ("LOG", "SPOOL", "LOCK", "RUN")},
        "EXECUTE": "$(LOCAL_DIR)/execute",
        "LOCAL_CONFIG_FILE": "",
        "LOCAL_CONFIG_DIR": "",
        "REQUIRE_LOCAL_CONFIG_FILE": "False",
        "USER_CONFIG_FILE": "",
        **joining(settings.collector),
        "USE_SHARED_PORT": "False",
        "SEC_TOKEN_DIRECTORY": tokens,
        "SEC_TOKEN_SYSTEM_DIRECTORY": tokens,
        # Workers hold no signing key: who has their files cannot make tokens of the pool.
        "SEC_PASSWORD_DIRECTORY": str(home / "keys"),
        "SEC_TOKEN_POOL_SIGNING_KEY_FILE": str(home / "keys/POOL"),
    }


def client_config(settings: StartdSettings) -> str:
    """For asking the collector."""
    return text({**_common(settings, settings.directory / "client"), **settings.config})


def worker_config(settings: StartdSettings, shape: WorkerShape) -> str:
    """For a ``condor_master`` with one startd.

    Static slots: a pool's own jobs see at once how many there are, and what was asked for.
    """
    home = settings.directory / shape.name
    memory = shape.memory_mb or settings.memory_mb
    attributes = {
        **named(settings.site),
        DEMAND_ATTRIBUTE: shape.demand,
        WORKER_ATTRIBUTE: shape.name,
    }
    return text(
        {
            **_common(settings, home),
            **{key: f'"{value}"' for key, value in attributes.items()},
            "DAEMON_LIST": "MASTER, STARTD",
            "STARTD_NAME": shape.name,
            "STARTD_ATTRS": f"$(STARTD_ATTRS) {' '.join(attributes)}",
            "NUM_CPUS": str(shape.cores * shape.slots),
            "MEMORY": str(memory * shape.slots),
            "SLOT_TYPE_1": f"cpus={shape.cores}, memory={memory}",
            "SLOT_TYPE_1_PARTITIONABLE": "False",
            "NUM_SLOTS_TYPE_1": str(shape.slots),
            "START": f"time() < {math.ceil(shape.until)}",
            **staying(settings.idle_s),
            **settings.config,
        }
    )


def text(values: Mapping[str, str]) -> str:
    """Settings as a file of HTCondor's."""
    return "".join(f"{key} = {value}\n" for key, value in values.items())
