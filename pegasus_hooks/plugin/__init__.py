"""The planner plug-in: a Java site selector for ``pegasus-plan``, and how it is told about ADON.

``java/`` holds its sources, ``signatures/`` the few Pegasus classes it is compiled against, written
for this purpose with empty bodies and left out of the jar. See docs/planner-plugin.md.
"""

from __future__ import annotations

from collections.abc import Sequence

SITE_SELECTOR_CLASS = "org.adon.pegasus.AdonSiteSelector"
JAR_NAME = "adon-pegasus.jar"

SELECTOR_PROPERTY = "pegasus.selector.site"
COMMAND_PROPERTY = "pegasus.selector.site.adon.command"
CONFIG_PROPERTY = "pegasus.selector.site.adon.config"
TIMEOUT_PROPERTY = "pegasus.selector.site.adon.timeout"


def command_text(words: Sequence[str]) -> str:
    """Program and arguments as the value of :data:`COMMAND_PROPERTY`, quoted where needed.

    In a properties file each backslash must be doubled once more.
    """
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if word and not any(c.isspace() or c in "\"'\\" for c in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
