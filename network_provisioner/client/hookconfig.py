"""The hooks' configuration: a small JSON file whose path DAGMan hands to every hook.

{"broker": "http://127.0.0.1:8470",    where the broker answers
 "timeout_s": 2.0,                      longest total wait for a broker that does not answer
 "patience_s": null,                    longest wait for a queued path; null: as its template says
 "template": "default",                 by name; "default" lets the application find its own
 "archive": "archive.sqlite",           read where the broker is away; a file or URL, or null
 "token": null,                         the broker's token, or null
 "token_file": null,                    better: the file that has it (or ADON_TOKEN_FILE)
 "ca": null,                            PEM file that an https broker is known by (or ADON_CA)
 "project": null,                       whose transfers they are where a job does not say, or null
 "watch": null,                         folder where running workflows are noted for the watcher
 "ahead": false,                        whether the watcher reserves for whole workflows in advance
 "site": null,                          where HTCondor's access point stands, or null
 "sources": {},                         sites by prefixes of URLs, or host names, that are there
 "redirector": null}                    URL of the director that names caches of OSDF, or null

Files count from the folder of this one, or from a user's home where they begin with ``~``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from network_provisioner.base.errors import AbsentError, InputError

_NUMBERS = ("timeout_s", "patience_s")
_FILES = ("archive", "token_file", "ca", "watch")


@dataclass(frozen=True, slots=True)
class HookConfig:
    """See the module. Times in seconds."""

    broker: str
    timeout_s: float = 2.0
    patience_s: float | None = None
    template: str = "default"
    archive: str | None = None
    token: str | None = None
    token_file: str | None = None
    ca: str | None = None
    project: str | None = None
    watch: str | None = None
    ahead: bool = False
    site: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    redirector: str | None = None


def load(path: Path) -> HookConfig:
    """Read the file. Raises InputError that names the key."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AbsentError(
            path, "found no such file, expected the hooks' JSON configuration"
        ) from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}, expected the hooks' JSON configuration"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: found {error}, expected the hooks' JSON configuration") from None
    if not isinstance(data, dict) or not isinstance(data.get("broker"), str):
        raise InputError(f"{path}: found no key 'broker', expected the broker's URL")
    known = {f.name for f in fields(HookConfig)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise InputError(f"{path}: unknown key {unknown[0]!r}, expected {', '.join(sorted(known))}")
    for key, value in data.items():
        if expected := _expected(key, value):
            raise InputError(f"{path}: {key}: found {value!r}, expected {expected}")
    if data.get("template") is None:
        data.pop("template", None)
    data |= {key: _located(data[key], path) for key in _FILES if data.get(key)}
    return HookConfig(**data)


def _located(named: str, path: Path) -> str:
    if "://" in named or named.startswith("~") or ("=" in named and _is_database(named)):
        return named
    return str(path.absolute().parent / named)


def _is_database(named: str) -> bool:
    from network_provisioner.base.database_url import is_database_url  # noqa: PLC0415 - few need it

    return is_database_url(named)


def _expected(key: str, value: Any) -> str:
    """What a value that cannot be should be, empty for one that can."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == "ahead":
        return "" if isinstance(value, bool) else "true or false"
    if key == "sources":
        named = isinstance(value, dict) and all(v and isinstance(v, str) for v in value.values())
        return "" if named else "sites by prefixes of URLs"
    if key == "patience_s" and value is None:
        return ""
    if key in _NUMBERS:
        return "" if number and 0 <= value < float("inf") else "seconds"
    if not isinstance(value, str | None):
        return "text"
    web = key != "redirector" or not value or value.startswith(("http://", "https://"))
    return "" if web else "an http or https URL"
