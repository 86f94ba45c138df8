"""What can be installed: parts, each some settings of Pegasus and the programs they name.

Today there is one, the site selector, in two kinds. Another part is another function that returns
a :class:`Part`; the rest of this package does not ask what a part is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from network_provisioner.errors import InputError
from pegasus_hooks import plugin, properties

CALLOUT = Path(__file__).resolve().parents[1] / "callout.py"
_PATH_PROPERTY = "pegasus.selector.site.path"
_ENV_PROPERTY = "pegasus.selector.site.env."


@dataclass(frozen=True, slots=True)
class Part:
    """Something to install: ``settings`` of Pegasus, ``jars`` for its class path by file name.

    ``answered`` is a regular expression that a line of the planner's log matches when the part did
    its work, ``failed`` one that it matches when it could not.
    """

    name: str
    what: str
    settings: Mapping[str, str]
    jars: Mapping[str, bytes] = field(default_factory=dict)
    answered: str = ""
    failed: str = ""

    def lines(self) -> list[str]:
        """The settings as lines of a property file."""
        said = [f"{key} = {properties.escape(value)}" for key, value in self.settings.items()]
        return [f"# {self.name}: {self.what}", *said]


def plugin_part(jar: bytes, python: str, config: Path | None, timeout_s: float | None) -> Part:
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
    return Part(
        "selector",
        "ADON chooses sites, asked once per workflow",
        settings,
        {plugin.JAR_NAME: jar},
        r"ADON: \d+ jobs of .* mapped in ",
        "by the built-in rule",
    )


def callout_part(python: str, config: Path | None, timeout_s: float | None) -> Part:
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
    return Part(
        "selector",
        "ADON chooses sites, asked once per job (5 s each; the plug-in is asked once)",
        settings,
        {},
        r"adon: this planner sleeps about",
        "by the built-in rule",
    )
