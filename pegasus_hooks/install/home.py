"""Where a Pegasus, or one user of it, keeps settings and programs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from network_provisioner.base.errors import InputError

PLANNER = "pegasus-plan"
PROPERTIES = "pegasus.properties"


@dataclass(frozen=True, slots=True)
class PegasusHome:
    """A Pegasus installation. ``etc`` holds the settings of all its users (lowest precedence),
    ``java`` what is on the planner's class path."""

    root: Path
    etc: Path
    java: Path

    @property
    def planner(self) -> Path:
        """Its ``pegasus-plan``."""
        return self.root / "bin" / PLANNER

    @property
    def properties(self) -> Path:
        """The settings of all its users; a symbolic link is followed."""
        return real(self.etc / PROPERTIES)


def real(path: Path) -> Path:
    """The file or folder behind symbolic links. Raises InputError for a loop of them."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise InputError(f"{path}: found a loop of symbolic links, expected a file") from None


def home_at(root: Path) -> PegasusHome:
    """The Pegasus in ``root``. Raises InputError if there is none."""
    root = root.expanduser().absolute()
    if not root.is_dir():
        actual = "no folder" if root.exists() else "no such folder"
        raise InputError(f"{root}: found {actual}, expected a Pegasus installation")
    java = root / "share" / "pegasus" / "java"
    for needed in (root / "bin" / PLANNER, java):
        if not needed.exists():
            raise InputError(
                f"{root}: found no {needed.relative_to(root)}, expected a Pegasus installation"
            )
    # As pegasus-config has it: distribution packages keep their settings in /etc.
    etc = Path("/etc/pegasus") if root == Path("/usr") else root / "etc"
    return PegasusHome(root, etc, java)


def home_on_path() -> PegasusHome:
    """The Pegasus whose ``pegasus-plan`` is on PATH. Raises InputError."""
    planner = shutil.which(PLANNER)
    if planner is None:
        raise InputError(f"{PLANNER}: not on PATH, expected --home with a Pegasus installation")
    return home_at(real(Path(planner)).parents[1])


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """Where an installation writes: ``settings`` is the file that takes the block, in the form of a
    property file or (``shell``) of a shell's start file; ``jars`` the folder for what the planner
    loads, ``programs`` the one for what DAGMan runs. Folders of ours (``own``) go with what is in
    them.

    ``properties`` is, besides a start file, the property file for what cannot be said as variables;
    ``planner`` the ``pegasus-plan`` that always loads what is in ``jars``.
    """

    settings: Path
    jars: Path
    programs: Path
    shell: bool = False
    own: tuple[Path, ...] = ()
    properties: Path | None = None
    planner: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that takes a block."""
        return (self.settings, *((self.properties,) if self.properties else ()))

    @property
    def lock(self) -> Path:
        """A folder that is there before and after."""
        folder = self.settings.parent
        while not folder.exists():
            folder = folder.parent
        return folder


def place_for_all(home: PegasusHome) -> InstallTarget:
    """For all users of a Pegasus."""
    jars = real(home.java)
    programs = jars.parent / "adon"
    return InstallTarget(home.properties, jars, programs, own=(programs,), planner=home.planner)


def place_for_file(file: Path) -> InstallTarget:
    """For who plans with a catalog or a property file: that, and a folder beside it."""
    file = real(file)
    folder = file.with_name(f"{file.stem}.adon")
    return InstallTarget(file, folder, folder, own=(folder,))


def place_for_user(home: Path, shell: str, callout: bool) -> InstallTarget:
    """For one user, who may write nowhere else.

    The callout needs properties only. The plug-in's jar is found by the variable CLASSPATH, and a
    planner that has the setting and not the jar stops; so both come from the start file of the
    user's shell (``shell``: its program), as variables.
    """
    rc = real(home / ".pegasusrc")
    ours = home / ".local" / "share" / "adon"
    if callout:
        return InstallTarget(rc, ours, ours, own=(ours,))
    start = {"bash": ".bashrc", "zsh": ".zshenv"}.get(Path(shell).name, ".profile")
    return InstallTarget(real(home / start), ours, ours, True, (ours,), rc)
