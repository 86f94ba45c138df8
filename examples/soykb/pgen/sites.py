"""Where the example runs: example hosts, or the sites of a running test bed.

The four sites are SoyKB's (thesis, Figures 7 and 8): the data store at iPlant, the campus at MU,
the remote HPC site TACC, and the submit host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgen import ExampleError

DATA_STORE = "iplant"
EXECUTION = ("mu", "tacc")
SITES = (DATA_STORE, *EXECUTION, "local")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
TOOLS = Path(__file__).resolve().parents[1] / "tools"


@dataclass(frozen=True)
class Place:
    """One site: its directories, the GridFTP server that serves both, and its workers.

    A file's URL is ``url`` + its absolute path. ``tools`` is the directory with the workflow's
    programs; ``env`` the environment its jobs get. ``sees_submit_host``: its workers read and
    write the submit directory, so that HTCondor need not carry it there.
    """

    name: str
    scratch: str
    storage: str
    url: str
    workers: int
    tools: str
    env: Mapping[str, str] = field(default_factory=dict)
    sees_submit_host: bool = False

    def file_url(self, path: str) -> str:
        return f"{self.url}{path}"


def example_places() -> dict[str, Place]:
    """Hosts that exist nowhere: enough to read, select sites and plan."""
    hosts = {
        "iplant": ("data.iplant.example.org", 2),
        "mu": ("dtn.mu.example.edu", 8),
        "tacc": ("gridftp.tacc.example.edu", 32),
        "local": ("submit.soykb.example.org", 1),
    }
    return {
        name: Place(
            name=name,
            scratch=f"/{name}/scratch/soykb",
            storage=f"/{name}/storage/soykb",
            url=f"gsiftp://{host}:2811",
            workers=workers,
            tools="/opt/soykb/bin",
        )
        for name, (host, workers) in hosts.items()
    }


def _joined_path(*parts: str) -> str:
    """Directories of several PATHs in order, each once."""
    return ":".join(dict.fromkeys(d for part in parts for d in part.split(":") if d))


def _text(where: str, values: object, key: str, expected: str, start: str = "") -> str:
    found = values.get(key) if isinstance(values, dict) else None
    if not isinstance(found, str) or not found.startswith(start):
        raise ExampleError(f"{where}.{key}: found {found!r}, expected {expected}")
    return found


def testbed_places(path: Path) -> dict[str, Place]:
    """The sites that a running test bed describes in its ``testbed.json``.

    Raises ExampleError where a site or value is missing or of the wrong kind.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExampleError(f"{path}: found {error}, expected a testbed.json") from error
    if not isinstance(described, dict) or not isinstance(described.get("sites"), dict):
        raise ExampleError(f"{path}: found no sites, expected 'sites' with {', '.join(SITES)}")
    tools_bin = _text(str(path), described, "tools_bin", "an absolute directory", "/")
    environment = described.get("transfer_env", {})
    if not isinstance(environment, dict) or not all(
        isinstance(value, str) for value in environment.values()
    ):
        raise ExampleError(f"{path}: transfer_env: expected names with text values")
    search = _joined_path(tools_bin, environment.get("PATH", ""), SYSTEM_PATH)
    everywhere = {"PATH": search}
    if "pegasus_home" in described:  # pegasus-plan asks where each site has kickstart
        home = _text(str(path), described, "pegasus_home", "an absolute directory", "/")
        everywhere["PEGASUS_HOME"] = home
    places = {}
    for name in SITES:
        where = f"{path}: sites.{name}"
        site = described["sites"].get(name)
        if not isinstance(site, dict):
            raise ExampleError(f"{where}: found {site!r}, expected its scratch, storage and url")
        workers = site.get("workers", 1)
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
            raise ExampleError(f"{where}.workers: found {workers!r}, expected a whole number")
        places[name] = Place(
            name=name,
            scratch=_text(where, site, "scratch", "an absolute path", "/"),
            storage=_text(where, site, "storage", "an absolute path", "/"),
            url=_text(where, site, "url", "gsiftp://HOST:PORT", "gsiftp://").rstrip("/"),
            workers=workers,
            tools=str(TOOLS),
            # Transfers are driven from the submit host: only it needs the proxy.
            env={**(environment if name == "local" else {}), **everywhere},
            sees_submit_host=True,
        )
    return places
