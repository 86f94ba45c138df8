"""Section ``expansion`` of adon.yml: the cloud that it names, and the limits."""

from __future__ import annotations

import fcntl
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from network_provisioner.base.errors import InputError, MissingError

if TYPE_CHECKING:
    from adon.config.sections import Config, ExpansionConfig, FlavourConfig
    from condor_plugins.pool.cloud.protocol import Cloud
    from condor_plugins.pool.scaling import Flavour, Limits

LOCK = "lock"
"""The file in ``directory`` that is held (flock) by who starts and deletes machines."""
_TOOL_S = 60.0
_MEMORY_MB = 1024  # of a core


def section_of(config: Config, path: Path) -> ExpansionConfig:
    """The section in the file ``path``. Raises InputError if there is none."""
    if config.expansion is None:
        raise InputError(f"{path}: found no section 'expansion', expected how the pool can grow")
    return config.expansion


def limits_of(config: ExpansionConfig) -> Limits:
    """What it says of them: nothing is spent, and no flavour backed off from."""
    from condor_plugins.pool.scaling import Limits  # noqa: PLC0415

    def most(value: float | None) -> float:
        return math.inf if value is None else value

    return Limits(
        most(config.cores),
        config.machines,
        most(config.money_per_day),
        worth=config.worth,
    )


def cloud_of(config: Config, path: Path) -> Cloud:
    """The cloud of the section in the file ``path``. Raises InputError if there is no such
    section or it lacks something, MissingError if something is not installed."""
    section = section_of(config, path)
    if section.driver == "command":
        from condor_plugins.pool.cloud.command import CommandCloud  # noqa: PLC0415

        return CommandCloud(section.command, section.timeout)
    if config.pool is None or not config.pool.collector:
        raise InputError(
            f"{path}: found no pool.collector, expected HOST:PORT for machines to join"
        )
    make = _openstack if section.driver == "openstack" else _startd
    return make(section, config.pool.collector)


def _startd(section: ExpansionConfig, collector: str) -> Cloud:
    from condor_plugins.pool.cloud.startd import StartdCloud  # noqa: PLC0415
    from condor_plugins.pool.cloud.workerconfig import StartdSettings  # noqa: PLC0415

    return StartdCloud(
        StartdSettings(
            Path(section.directory),
            collector,
            [_flavour(name, flavour) for name, flavour in section.flavours.items()],
            Path(section.release),
            Path(section.token_file) if section.token_file else None,
            section.site,
            section.idle,
            section.config,
            section.environment,
        )
    )


def _flavour(name: str, given: FlavourConfig) -> Flavour:
    from condor_plugins.pool.scaling import Flavour  # noqa: PLC0415

    assert given.cores is not None
    memory_mb = given.memory_mb or given.cores * _MEMORY_MB
    boot = {"boot_s": 20.0, "boot_spread_s": 10.0} | _boot(given)
    return Flavour(name, given.cores, memory_mb, given.price, **boot)


def _boot(given: FlavourConfig) -> dict[str, float]:
    """What the section says of the boot of a flavour."""
    settings = {"boot_s": given.boot, "boot_spread_s": given.boot_spread}
    return {key: value for key, value in settings.items() if value is not None}


def _openstack(section: ExpansionConfig, collector: str) -> Cloud:
    from condor_plugins.pool.cloud.workerconfig import ExecuteNode, boot_token, user_data  # noqa: PLC0415

    try:
        from condor_plugins.pool.cloud.openstack import (  # noqa: PLC0415
            OpenStackCloud,
            OpenStackSettings,
        )
    except ImportError as error:
        raise MissingError(
            f"expansion: {error}, expected openstacksdk: pip install 'adon-wms[openstack]'"
        ) from None
    named = section.openstack
    assert named is not None
    tool = "condor_token_create" if named.identity else "condor_token_fetch"
    if shutil.which(tool) is None:
        raise MissingError(f"{tool}: not found on PATH, expected HTCondor's tools for tokens")
    node = ExecuteNode(collector, section.site, section.idle, section.config, named.commands)
    lifetime_s = math.ceil(named.boot_within)
    settings = OpenStackSettings(
        pool=section.pool,
        collector=collector,
        prices={name: flavour.price for name, flavour in section.flavours.items()},
        boots={name: _boot(flavour) for name, flavour in section.flavours.items()},
        **named.model_dump(exclude={"commands", "identity", "boot_within", "life"}),
        life_s=named.life,
    )
    return OpenStackCloud(
        settings,
        lambda _, name: user_data(node, name, boot_token(_tool, lifetime_s, named.identity)),
    )


def _tool(words: Sequence[str]) -> str:
    """What a program of HTCondor's writes. Raises CloudError."""
    from condor_plugins.pool.cloud.protocol import CloudError, Refusal  # noqa: PLC0415

    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_TOOL_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CloudError(f"{words[0]}: {error}", Refusal.BUSY) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise CloudError(f"{words[0]}: {lines[-1] if lines else 'it failed'}", Refusal.BUSY)
    return done.stdout


def adon_is_at_work(directory: str) -> bool | None:
    """Whether a process on this machine starts and deletes machines; None if none ever did."""
    try:
        with (Path(directory) / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
