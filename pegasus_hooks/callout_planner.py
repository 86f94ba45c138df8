"""What a planner was asked to plan, from its command line and its properties.

``pegasus-plan`` runs ``java … -Dpegasus.home.sysconfdir=… edu.isi.pegasus.planner.client.CPlanner``
with its own arguments. Properties come from, each over the ones before: ``pegasus.properties`` in
its ``etc``, ``~/.pegasusrc``, ``pegasus.properties`` in the working directory, ``--conf``, the
environment's variables ``_PEGASUS__…``, ``-D``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pegasus_hooks import properties

# getopt's table of the planner (version 6; older ones know a part of it).
_WITH_VALUE = (
    "dir", "dax", "sites", "conf", "cache", "cluster", "basename", "relative-dir", "job-prefix",
    "rescue", "forward", "X", "relative-submit-dir", "inherited-rc-files", "staging-site",
    "input-dir", "output-dir", "output-sites", "output-map", "cleanup", "reuse",
    "transformations-dir",
)  # fmt: skip
_ALONE = (
    "verbose", "help", "force", "submit", "version", "randomdir", "nocleanup", "deferred", "quiet",
    "force-replan", "json",
)  # fmt: skip
_SHORT_WITH_VALUE = "DdsomcCb2j3FX456891RtOI"
_SHORT = {"s": "sites", "o": "output-sites", "6": "conf", "d": "dax"}
_CLASS = re.compile(r"(^|\.)CPlanner$")
_SYSTEM = re.compile(r"-D([^=]+)=(.*)", re.DOTALL)
DEFAULT_WORKFLOW = "workflow.yml"
KINDS = ("site", "replica", "transformation")


@dataclass(frozen=True, slots=True)
class Asked:
    """A planner's command line: files as they were written, relative to its working directory."""

    workflow: str
    conf: str | None = None
    sites: tuple[str, ...] = ()
    output_site: str | None = None
    system: Mapping[str, str] = field(default_factory=dict)


def read_command(words: Sequence[str]) -> Asked:
    """The command line of a planner's Java process. Raises ValueError where it is none."""
    at = next((i for i, word in enumerate(words) if _CLASS.search(word)), None)
    if at is None:
        shown = " ".join(words)[:60]
        raise ValueError(f"the process that asks is {shown!r}, expected a planner (CPlanner)")
    system = {m[1]: m[2] for word in words[1:at] if (m := _SYSTEM.fullmatch(word))}
    options, defined, rest = _options(words[at + 1 :])
    system |= defined
    outputs = _names(options.get("output-sites", ""))
    return Asked(
        workflow=options.get("dax") or (rest or [""])[-1] or DEFAULT_WORKFLOW,
        conf=options.get("conf") or None,
        sites=_names(options.get("sites", "")),
        output_site=outputs[0] if outputs else None,
        system=system,
    )


def _options(words: Sequence[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Long options with their values, properties given by ``-D``, and all that is no option."""
    options: dict[str, str] = {}
    defined: dict[str, str] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            name = _whole_name(name)
            if name in _WITH_VALUE:
                options[name] = value if has_value or not left else left.pop(0)
        elif word.startswith("-") and len(word) > 1:
            letter = word[1]
            if letter not in _SHORT_WITH_VALUE:
                continue  # flags only: several may stand together, none of them matters here
            value = word[2:] or (left.pop(0) if left else "")
            if letter == "D":
                key, _, said = value.partition("=")
                defined[key] = said
            elif letter in _SHORT:
                options[_SHORT[letter]] = value
        else:
            rest.append(word)
    return options, defined, rest


def _whole_name(name: str) -> str:
    """getopt takes any beginning that fits one option only."""
    if name in _WITH_VALUE or name in _ALONE:
        return name
    fits = [n for n in (*_WITH_VALUE, *_ALONE) if n.startswith(name)]
    return fits[0] if len(fits) == 1 else name


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def read_properties(
    asked: Asked, directory: Path, home: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """All properties the planner has. Files that are not there or not readable say nothing."""
    system = {"user.dir": str(directory), "user.home": home, **asked.system}
    known: dict[str, str] = {}
    etc = system.get("pegasus.home.sysconfdir")
    files = [
        Path(etc, "pegasus.properties") if etc else None,
        Path(home, ".pegasusrc") if home else None,
        directory / "pegasus.properties",
        directory / asked.conf if asked.conf else None,
    ]
    for file in files:
        if file is not None:
            known |= properties.fill(_file(file), {**system, **known})
    for key, value in environ.items():
        if key.startswith("_PEGASUS"):
            known[key[1:].lower().replace("__", ".")] = value
    return {**known, **asked.system}


def _file(path: Path) -> dict[str, str]:
    try:
        return properties.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}


def catalogs(known: Mapping[str, str], workflow: Path, directory: Path) -> dict[str, Path]:
    """The catalog files that the planner reads, by kind (``site``, ``replica``,
    ``transformation``); a kind that stands inside the workflow, or nowhere, is left out.

    Raises ValueError for a catalog that is not Pegasus 5 YAML.
    """
    try:
        text = workflow.read_bytes()
    except OSError as error:
        raise ValueError(f"{workflow}: {error.strerror}, expected the workflow") from None
    found: dict[str, Path] = {}
    for kind in KINDS:
        form = known.get(f"pegasus.catalog.{kind}", "YAML")
        if form.lower() != "yaml":
            raise ValueError(f"property pegasus.catalog.{kind}: found {form}, expected YAML")
        named = known.get(f"pegasus.catalog.{kind}.file")
        default = directory / f"{kind}s.yml"
        if named:
            found[kind] = directory / named
        elif re.search(rb"^[\"']?%sCatalog[\"']?\s*:" % kind.encode(), text, re.MULTILINE):
            continue
        elif default.exists():
            found[kind] = default
    return found
