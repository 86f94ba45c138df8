"""Where a workflow's properties and catalogs are: as pegasus-plan looks for them.

Later ones win: ``~/.pegasusrc``, ``pegasus.properties`` in the working directory (and beside the
workflow), the file of ``--conf``, variables ``_PEGASUS…`` of the environment, options.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from network_provisioner.base import account
from network_provisioner.base.errors import InputError
from site_selector.catalogs import properties as java
from site_selector.catalogs.documents import read_text
from site_selector.catalogs.fields import pegasus_key

DEFAULT_NAMES: Mapping[str, tuple[str, ...]] = {
    "site": ("sites.yml", "sites.xml"),
    "replica": ("replicas.yml", "rc.txt"),
    "transformation": ("transformations.yml", "tc.txt"),
}
CONFIGURATION = "pegasus.data.configuration"
CONFIGURATIONS = ("sharedfs", "nonsharedfs", "condorio")
_OLD_CONFIGURATIONS = {"s3": "nonsharedfs", "condor": "condorio"}
_FILE_KEY = "pegasus.catalog.{}.file"
_SITE_PROFILES = "pegasus.catalog.site.sites."
PROPERTY_VARIABLE = "_PEGASUS"  # what the names of variables that are properties begin with


@dataclass(frozen=True)
class Sources:
    """A workflow and what is read with it.

    ``sites``, ``replicas`` and ``transformations`` are catalogs that an option names, ``conf`` a
    property file, ``input_dirs`` directories of inputs on this machine; ``data_configuration`` and
    ``staging_site`` are what options say. ``home`` is the user's, ``environment`` what variables
    stand for.
    """

    workflow: Path
    sites: Path | None = None
    replicas: Path | None = None
    transformations: Path | None = None
    conf: Path | None = None
    input_dirs: Sequence[Path] = ()
    data_configuration: str | None = None
    staging_site: str | None = None
    home: Path = field(default_factory=account.home)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @cached_property
    def property_files(self) -> tuple[Path, ...]:
        """The files of properties that are there; each wins over those before it."""
        folders = (Path.cwd(), self.workflow.absolute().parent)
        usual = [self.home / ".pegasusrc", *(folder / "pegasus.properties" for folder in folders)]
        files = [file for file in dict.fromkeys(usual) if file.is_file()]
        return (*files, *([self.conf] if self.conf else []))

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """Pegasus's properties, variables filled in. Raises InputError for a file that cannot be
        read, and where a property that is used here names another that is not set."""
        known: dict[str, str] = {}
        system = {
            "user.home": str(self.home),
            "user.dir": str(Path.cwd()),
            "user.name": self.environment.get("USER", self.home.name),
        }
        for file in self.property_files:
            from_file = read_properties(file)
            values = {key: value for _, key, value in from_file}
            for number, key, value in from_file:
                missing = java.unset(value, {**system, **known, **values})
                if missing and key.startswith(("pegasus.catalog.", CONFIGURATION)):
                    raise InputError(
                        f"{file}:{number}: {key}: found ${{{missing}}}, which is no property, "
                        "expected one (Pegasus puts in no variables of the environment here)"
                    )
            known |= java.fill(values, {**system, **known})
        known |= self.variable_properties
        return {key: value.strip() for key, value in known.items()}

    @cached_property
    def variable_properties(self) -> Mapping[str, str]:
        """The properties that variables of the environment name."""
        return {
            name[1:].lower().replace("__", "."): value
            for name, value in self.environment.items()
            if name.startswith(PROPERTY_VARIABLE)
        }

    @cached_property
    def variables(self) -> Mapping[str, str]:
        """What ``${NAME}`` stands for in workflow and catalogs: the environment, and properties
        ``env.NAME``; and the directory of ``pegasus-plan``, which this sets itself."""
        planner = shutil.which("pegasus-plan", path=self.environment.get("PATH", ""))
        bin_dir = {"PEGASUS_BIN_DIR": str(Path(planner).parent)} if planner else {}
        own = {k.removeprefix("env."): v for k, v in self.properties.items() if k[:4] == "env."}
        return {**self.environment, **bin_dir, **own}

    def catalog(self, kind: str) -> Path | None:
        """The file of the ``site``, ``replica`` or ``transformation`` catalog: that of an option,
        that of the properties, else one under its usual name in the working directory or beside
        the workflow. None if there is none, or only an empty one."""
        given: Path | None = getattr(self, f"{kind}s")
        if given is not None:
            return given
        named = self.properties.get(_FILE_KEY.format(kind))
        files = (self._named(name) for name in ([named] if named else DEFAULT_NAMES[kind]))
        return next((file for file in files if file.is_file() and file.stat().st_size), None)

    def absent(self) -> list[str]:
        """A line for each catalog that properties name and that is not there."""
        named = {key: self.properties.get(key) for key in map(_FILE_KEY.format, DEFAULT_NAMES)}
        return [
            f"{key}: found no file {name}; it is left out"
            for key, name in named.items()
            if name and not self._named(name).is_file()
        ]

    def _named(self, name: str | Path) -> Path:
        """A relative path is in the working directory, as for Pegasus, else beside the workflow."""
        sibling = self.workflow.parent / name
        return sibling if sibling.exists() and not Path(name).exists() else Path(name)

    def configuration(self) -> str | None:
        """Pegasus's data configuration of all jobs, None if neither option nor properties say
        one. Raises InputError for one that Pegasus does not know."""
        chosen = self.data_configuration or self.properties.get(CONFIGURATION)
        return None if chosen is None else known_configuration(chosen, CONFIGURATION)

    def site_profiles(self, site: str) -> dict[str, dict[str, str]]:
        """Profiles that the properties add to a site, by namespace."""
        prefix = f"{_SITE_PROFILES}{site}.profiles."
        profiles: dict[str, dict[str, str]] = {}
        for key, value in self.properties.items():
            if key.startswith(prefix):
                namespace, _, name = key.removeprefix(prefix).partition(".")
                name = pegasus_key(name) if namespace == "pegasus" else name
                profiles.setdefault(namespace, {})[name] = value
        return profiles


def read_properties(file: Path) -> list[tuple[int, str, str]]:
    """Line number, key and value of each setting in a file, in UTF-8 or in Java's Latin-1. Raises
    InputError."""
    text = read_text(file, "file of Pegasus's properties", "latin-1")
    try:
        return list(java.entries(text))
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None


def known_configuration(text: str, what: str) -> str:
    """A data configuration as Pegasus names it. Raises InputError for another."""
    name = text.strip().lower()
    name = _OLD_CONFIGURATIONS.get(name, name)
    if name not in CONFIGURATIONS:
        raise InputError(f"{what}: found {text!r}, expected one of {', '.join(CONFIGURATIONS)}")
    return name
