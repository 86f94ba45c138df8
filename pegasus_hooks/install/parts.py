"""What can be installed: parts, each some settings of Pegasus and the programs they name.

There are two: the site selector, in two kinds, and the hooks around transfers. The rest of this
package does not ask what a part is. Files that are ours alone are told here from somebody else's of
the same name.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from network_provisioner.base.errors import InputError
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks import plugin
from pegasus_hooks.install.edits import FileEdit, heading, read
from pegasus_hooks.install.home import real
from pegasus_hooks.prepost import hookscripts
from pegasus_hooks.prepost.hookscripts import Commands
from site_selector.catalogs import properties

SELECTOR, HOOKS = "selector", "hooks"
NAMES = (SELECTOR, HOOKS)
CALLOUT = Path(__file__).resolve().parents[1] / "callout.py"
_PATH_PROPERTY = "pegasus.selector.site.path"
_ENV_PROPERTY = "pegasus.selector.site.env."
# Every file that any part ever brought, so that a later version can take it out; of a jar a class
# in it by which it is known as ours.
JARS = {plugin.JAR_NAME: plugin.SITE_SELECTOR_CLASS.replace(".", "/") + ".class"}
# The configuration last: it is there as long as a script that names it.
PROGRAMS = (hookscripts.PRE_NAME, hookscripts.POST_NAME, hookscripts.CONFIG_NAME)


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A file that is installed; ``mode`` as chmod has it."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class InstallPart:
    """Something to install: ``settings`` of Pegasus, ``jars`` for its class path and ``programs``
    that DAGMan runs, both by file name.

    ``wished`` are settings in which the user's own choice is as good. ``variables``: Pegasus reads
    the settings from its environment, too. ``answered`` is a regular expression that a line of the
    planner's log matches when the part did its work, ``failed`` one that it matches when it could
    not; ``scripts`` are PRE and POST that a plan has.
    """

    name: str
    what: str
    settings: Mapping[str, str]
    wished: Mapping[str, str] = field(default_factory=dict)
    jars: Mapping[str, bytes] = field(default_factory=dict)
    programs: Mapping[str, ProgramFile] = field(default_factory=dict)
    variables: bool = False
    answered: str = ""
    failed: str = ""
    scripts: tuple[str, str] | None = None

    def lines(self) -> list[str]:
        """The settings as lines of a property file."""
        every = {**self.settings, **self.wished}
        property_lines = [f"{key} = {properties.escape(value)}" for key, value in every.items()]
        return [heading(self.name, self.what), *property_lines]


def plugin_part(
    jar: bytes, python: str, config: Path | None, timeout_s: float | None
) -> InstallPart:
    """The planner plug-in: asked once per workflow."""
    command = [python, "-I", "-m", "adon.planner_request"]
    settings = {
        plugin.SELECTOR_PROPERTY: plugin.SITE_SELECTOR_CLASS,
        plugin.COMMAND_PROPERTY: plugin.command_text(command),
    }
    if config is not None:
        settings[plugin.CONFIG_PROPERTY] = str(config.absolute())
    if timeout_s is not None:
        settings[plugin.TIMEOUT_PROPERTY] = f"{timeout_s:g}"
    return InstallPart(
        SELECTOR,
        "ADON chooses sites, asked once per workflow",
        settings,
        jars={plugin.JAR_NAME: jar},
        variables=True,
        answered=r"ADON: \d+ jobs of .* mapped in ",
        failed="by the built-in rule",
    )


def callout_part(python: str, config: Path | None, timeout_s: float | None) -> InstallPart:
    """The documented callout: asked once per job, after each of which the planner sleeps 5 s.

    Raises InputError for paths that the planner would split: it knows no quotes.
    """
    for path in (python, str(CALLOUT)):
        if any(char.isspace() for char in path):
            raise InputError(
                f"{path!r}: found white space, expected none: the planner splits "
                f"{_PATH_PROPERTY} there; use the plug-in, or move ADON"
            )
    settings = {
        plugin.SELECTOR_PROPERTY: "NonJavaCallout",
        _PATH_PROPERTY: f"{python} -I -S {CALLOUT}",
    }
    if config is not None:
        settings[f"{_ENV_PROPERTY}ADON_CONFIG"] = str(config.absolute())
    if timeout_s is not None:
        settings[f"{_ENV_PROPERTY}ADON_CALLOUT_TIMEOUT"] = f"{timeout_s:g}"
    return InstallPart(
        SELECTOR,
        "ADON chooses sites, asked once per job (5 s each; the plug-in is asked once)",
        settings,
        variables=True,
        answered=r"adon: this planner sleeps about",
        failed="by the built-in rule",
    )


def hooks_part(programs: Path, python: str, exitcode: Path, config: HookConfig) -> InstallPart:
    """PRE and POST of every job; ``programs`` is the folder that they will be in, ``exitcode``
    Pegasus's own check of a job. Raises InputError for paths that DAGMan would split."""
    commands = Commands(python, str(programs / hookscripts.CONFIG_NAME), str(exitcode))
    pre, post = programs / hookscripts.PRE_NAME, programs / hookscripts.POST_NAME
    return InstallPart(
        HOOKS,
        "a path before each transfer, and its return",
        hookscripts.settings(pre, post),
        hookscripts.preferred_properties(),
        programs=hook_files(commands, hookscripts.exitcode_script(commands), config),
        scripts=(str(pre), str(post)),
    )


def hook_files(
    commands: Commands, exitcode_script: str, config: HookConfig
) -> dict[str, ProgramFile]:
    """The hooks' scripts and their configuration, by file name."""
    settings = {key: value for key, value in asdict(config).items() if value is not None}
    return {
        hookscripts.CONFIG_NAME: ProgramFile((json.dumps(settings, indent=1) + "\n").encode()),
        hookscripts.PRE_NAME: ProgramFile(hookscripts.pre_script(commands).encode(), 0o755),
        hookscripts.POST_NAME: ProgramFile(exitcode_script.encode(), 0o755),
    }


def names_plugin(file: Path) -> bool:
    """Whether a property file sets the plug-in as selector. Raises InputError if it cannot be
    read."""
    try:
        settings = properties.parse((read(file) or b"").decode("utf-8", "surrogateescape"))
    except ValueError:  # Pegasus cannot read it either
        return False
    return settings.get(plugin.SELECTOR_PROPERTY, "").strip() == plugin.SITE_SELECTOR_CLASS


def jar_edit(path: Path, content: bytes | None, named: bool = False) -> FileEdit:
    """A change of one of our jars. Raises InputError if a file of that name is somebody's; where
    our settings have ``named`` it, what is left of a jar is ours."""
    path = real(path)
    before = read(path)
    size = len(content if content is not None else before or b"")
    shown = f"ADON's planner plug-in, {size} bytes"
    known = before is None or _our_jar(path, before) or (named and not _is_zip(before))
    return _change(FileEdit(path, before, content, shown), known)


def program_edit(path: Path, file: ProgramFile | None) -> FileEdit:
    """A change of a script or its configuration. Raises InputError as above."""
    path = real(path)
    before = read(path)
    after, mode = (file.content, file.mode) if file else (None, 0o644)
    known = before is None or _our_program(path, before)
    return _change(FileEdit(path, before, after, mode=mode), known)


def _change(change: FileEdit, is_ours: bool) -> FileEdit:
    if is_ours or not change.needed:
        return change
    if change.after is None:
        return FileEdit(change.path, change.before, change.before)
    raise InputError(f"{change.path}: found a file that is not ADON's, expected none of this name")


def _our_jar(path: Path, content: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            return JARS.get(path.name) in opened.namelist()
    except zipfile.BadZipFile:
        return False


def _is_zip(content: bytes) -> bool:
    return zipfile.is_zipfile(io.BytesIO(content))


def whole_jar(path: Path) -> bool:
    """Whether a file is a jar of ours that a planner can load."""
    try:
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            return _our_jar(path, content) and opened.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _our_program(path: Path, content: bytes) -> bool:
    if path.name != hookscripts.CONFIG_NAME:
        return b"\n" + hookscripts.MARK.encode() in content
    try:
        data = json.loads(content)
    except ValueError:
        return False
    return isinstance(data, dict) and "broker" in data
