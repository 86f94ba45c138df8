"""Whose transfer it is: user, project, experiment and application, from what Pegasus wrote down.

The network cannot see it in encrypted packets; the workflow knows it (application-aware SDN paper,
§IV.A).

    user         ``user`` in braindump.yml
    project      ``+ProjectName`` or ``accounting_group`` in the job's submit file (Pegasus profiles
                 of namespace condor), else ``project`` in the hooks' configuration
    experiment   ``app`` in braindump.yml (property ``pegasus.app``), else the workflow's name
    application  the workflow's name, by which a template may be found
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PROJECT = re.compile(
    r"^[ \t]*(?:(?:\+|MY\.)ProjectName|accounting_group)[ \t]*=[ \t]*(.*?)[ \t]*$", re.I | re.M
)
_LONGEST = 200  # characters of a name that is passed on


@dataclass(frozen=True, slots=True)
class Identity:
    """Empty where nobody knows."""

    user: str = ""
    project: str = ""
    experiment: str = ""
    application: str = ""


def identity_of(dump: Mapping[str, str], submit_text: str, project: str | None) -> Identity:
    """The identity of a job, by the braindump and the text of its submit file; ``project`` holds
    where that names none."""
    app = dump.get("app", "")
    label = dump.get("dax_label", "")
    return Identity(
        user=_name(dump.get("user", "")),
        project=_name(_project(submit_text) or project or ""),
        experiment=_name(app if app not in ("", "none", "null") else label),
        application=_name(label),
    )


def _project(submit_text: str) -> str:
    found = [value.strip("\"'") for value in _PROJECT.findall(submit_text)]
    return found[-1] if found else ""  # as condor_submit: the last one counts


def _name(text: str) -> str:
    """What the broker takes as a name: printable, and no longer than a name should be."""
    return "".join(c for c in text if c.isprintable())[:_LONGEST]
