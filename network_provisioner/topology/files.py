"""Files that hold a network: NetworkX node-link JSON and GraphML. Read, and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate, parse_duration, parse_rate
from network_provisioner.topology.data import topology_from_dict, topology_to_dict
from network_provisioner.topology.graph import Topology
from network_provisioner.topology.graphml import read_graphml, write_graphml
from network_provisioner.topology.nodelink import from_node_link, to_node_link

MAX_BYTES = 16 * 2**20  # 10,000 nodes with 30,000 links take half of it
_FORMATS = "expected a file named .json (node-link) or .graphml"


def resolve(section: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The ``topology`` section itself, or what the file holds that it names: ``{"file": NAME}``,
    relative to ``folder``. Raises InputError that names the file."""
    if "file" not in section:
        return dict(section)
    fields.known_keys(section, ("file",), "topology from a file")
    return read_topology(folder / fields.text(section, "file", "topology"))


def read_topology(file: Path) -> dict[str, Any]:
    """The network in a file, as a ``topology`` section that was checked. Raises InputError."""
    kind = file.suffix.lower()
    if kind not in (".json", ".graphml"):
        raise InputError(f"{file}: {_FORMATS}")
    content = _content(file)
    data = _json(content, file) if kind == ".json" else read_graphml(content, str(file))
    try:
        section = from_node_link(data)
        topology_from_dict(section)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return section


def graphml_of(topology: Topology) -> str:
    """The network as GraphML; :func:`read_topology` and ``networkx.read_graphml`` read it."""
    return write_graphml(to_node_link(topology))


def json_of(topology: Topology) -> str:
    """The network as node-link JSON; :func:`read_topology` reads it, and so does
    ``networkx.node_link_graph``."""
    return json.dumps(to_node_link(topology), indent=2, ensure_ascii=False) + "\n"


def yaml_of(topology: Topology) -> str:
    """The network as the section of adon.yml, with units where they say exactly the same."""
    section = topology_to_dict(topology)
    for link in section["links"]:
        _say(link, "capacity", format_rate(link["capacity"]), parse_rate)
        for key in ("delay", "jitter"):
            if key in link:
                _say(link, key, f"{1e3 * link[key]:.6g} ms", parse_duration)
    text: str = yaml.safe_dump(
        {"topology": section}, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _say(link: dict[str, Any], key: str, words: str, read: Callable[[str], float]) -> None:
    if read(words) == link[key]:
        link[key] = words


def _content(file: Path) -> bytes:
    try:
        # Not more than can be meant: a device may have no end.
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a name with a null byte
        raise InputError(f"{str(file)!r}: {error}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{file}: found more than {MAX_BYTES >> 20} MiB, expected a network")
    return content


def _json(content: bytes, file: Path) -> Any:
    def no_number(word: str) -> None:
        raise InputError(f"{file}: found the number {word}, expected finite ones")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise InputError(f"{file}: key {key[:80]!r} is given twice in one object")
            found[key] = value
        return found

    try:
        text = content.decode("utf-8-sig")
        return json.loads(text, parse_constant=no_number, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}, line {error.lineno}: {error.msg}, expected JSON") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: found bytes that are not UTF-8, expected JSON") from None
    except RecursionError:
        raise InputError(
            f"{file}: found too many levels, expected a list of nodes and edges"
        ) from None
    except ValueError:  # a number of thousands of digits
        raise InputError(
            f"{file}: found a number that is too long, expected shorter ones"
        ) from None
