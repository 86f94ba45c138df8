"""``adon.yml``: one validated file. Unknown keys are rejected with a suggestion.

Sections: ``topology`` (the network), ``controller`` (which driver speaks to it), ``broker`` (where
it listens and keeps its state), ``security`` (who may ask it what), ``limits`` (how it deals with
links and leases), ``templates`` (per application QSpec, RSpec, weights), ``template_policy`` (what
may be saved in self-service), ``pool`` (the HTCondor that site selection asks), ``expansion`` (how
that pool grows and shrinks), ``monitoring`` (what is measured, by whom, and who is told).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from adon.config.sections import Config
from adon.config.yamlfile import read_yaml
from network_provisioner.base.database_url import is_database_url, shown_url
from network_provisioner.base.errors import InputError, printable
from network_provisioner.base.schema import read
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.credentials import from_environment
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.templates.sitepolicy import policy_from_dict
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.files import resolve

_OPEN = 0o077  # bits of a file's mode, for others than its owner
_MOST_NAMED = 20  # keys


def parse_config(data: object, where: str, fitting: bool = True) -> Config:
    """Validate the parsed YAML of ``where``, network and templates too, and that what is measured
    can be, unless it need not be ``fitting``. Raises InputError with one line."""
    folder = Path(where).absolute().parent
    if isinstance(data, dict):
        # A section with all its lines commented out is as one that is not there. With nothing said
        # of the broker its files are in this folder, too.
        data = {"broker": {}} | {key: value for key, value in data.items() if value is not None}
    config = read(Config, data, where, folder)
    try:
        topology = resolve(config.topology, folder)
        network = topology_from_dict(topology)
        templates_from_dict(config.templates)
        policy_from_dict(config.template_policy)
        if fitting and config.monitoring is not None:
            # What a command without the section never reads.
            from adon.config.monitoring import check_monitoring  # noqa: PLC0415

            check_monitoring(config.monitoring, network)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return config.model_copy(update={"topology": topology})


def used_files(config: Config, file: Path) -> list[str]:
    """Lines: where the broker of ``file`` keeps what it knows, and which files of the same name lie
    where they were looked for by earlier versions or may be meant, and are not used."""
    lines = []
    for key, used in (("state", config.broker.state), ("archive", config.broker.archive)):
        if is_database_url(used):
            lines.append(f"{key} {shown_url(used)}")
            continue
        lines.append(f"{key} {used}")
        path, folder = Path(used), file.absolute().parent
        with suppress(OSError):
            mode = path.stat().st_mode & 0o777
            if mode & _OPEN:
                lines.append(
                    f"warning: {path} is open to others (mode {mode:04o}); 'chmod 600' closes it"
                )
        inside = path.relative_to(folder) if path.is_relative_to(folder) else path.name
        for other in dict.fromkeys((Path.cwd() / inside, Path.cwd() / path.name)):
            # pathlib raises where a folder is closed to this user.
            here, there = (os.path.exists(p) for p in (path, other))  # noqa: PTH110
            if other != path and there and not (here and path.samefile(other)):
                lines.append(
                    f"warning: {other} is not used, {used} is: relative paths count from the "
                    f"folder of {file.name}. To keep the former, stop the broker and move it "
                    f"there, or name it in broker.{key}"
                )
    return lines


def load_config(path: Path) -> Config:
    """Read and validate ``adon.yml``. Raises InputError naming file and line or key."""
    return parse_config(read_yaml(path), str(path))


def broker_of(config: Config, timeout_s: float) -> BrokerClient:
    """The broker of a configuration, which knows us by its ``broker.token``, else by what the
    environment has. Raises InputError."""
    token, tls = from_environment(os.environ)
    return BrokerClient(config.broker_url, timeout_s, config.broker.token or token, tls)


def changes_text(before: Config, after: Config) -> str:
    """The keys whose values differ, as ``topology.links.s1-s2.capacity``, in a few words, and no
    value: it may be secret."""
    keys = list(dict.fromkeys(_changed("", before.model_dump(), after.model_dump())))
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return (
        f"changed: {printable(', '.join(keys[:_MOST_NAMED]))}{more}" if keys else "no key changed"
    )


def _changed(key: str, before: Any, after: Any) -> Iterator[str]:
    if before == after:
        return
    old, new = _items(before), _items(after)
    if old is None or new is None or old == new:  # in another order, too
        yield key
        return
    for name in {**old, **new}:
        place = f"{key}.{name}" if key else str(name)
        if name in old and name in new:
            yield from _changed(place, old[name], new[name])
        else:
            yield place


def _items(value: Any) -> Mapping[Any, Any] | None:
    """What a mapping holds, or a list of what has names, or ends as links have."""
    if isinstance(value, list):
        try:
            return {item.get("name") or f"{item['a']}-{item['b']}": item for item in value}
        except (AttributeError, KeyError):
            return None
    return value if isinstance(value, Mapping) else None
