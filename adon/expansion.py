"""The driver that adon.yml names for growing the pool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adon.config.sections import Config
from condor_plugins.pool.cloud.command import CommandExpansion
from condor_plugins.pool.cloud.startd import StartdExpansion
from condor_plugins.pool.cloud.workerconfig import StartdSettings
from condor_plugins.pool.demand import ExpansionLimits
from network_provisioner.base.errors import InputError

if TYPE_CHECKING:
    from condor_plugins.pool.demand import Expansion


def expansion_of(config: Config, path: Path) -> Expansion:
    """The driver of section ``expansion`` in the file ``path``. Raises InputError where there is no
    such section or it lacks something, MissingError where HTCondor is not installed."""
    found = config.expansion
    if found is None:
        raise InputError(f"{path}: found no section 'expansion', expected how the pool can grow")
    if found.driver == "command":
        return CommandExpansion(found.command, found.timeout)
    if config.pool is None or not config.pool.collector:
        raise InputError(f"{path}: found no pool.collector, expected HOST:PORT for workers to join")
    return StartdExpansion(
        StartdSettings(
            Path(found.directory),
            config.pool.collector,
            Path(found.release),
            Path(found.token_file) if found.token_file else None,
            found.site,
            found.memory_mb,
            found.idle,
            found.config,
            found.environment,
        ),
        ExpansionLimits(found.most, found.per_worker),
    )
