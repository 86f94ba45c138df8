"""Where the example runs: example hosts, or the sites of a running test bed.

The four sites are SoyKB's (thesis, Figures 7 and 8): the data store at iPlant, the campus at MU,
the remote HPC site TACC, and the submit host.
"""

from __future__ import annotations

import json
import os
import shutil
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


def here_places(out: Path) -> dict[str, Place]:
    """Sites that are folders below ``out``, for a pool on this machine: any Pegasus plans for them,
    without GridFTP and its proxies. The jobs get this process's PATH."""
    env = {"PATH": os.environ.get("PATH", SYSTEM_PATH)}
    if planner := shutil.which("pegasus-plan"):
        env["PEGASUS_HOME"] = str(Path(planner).resolve().parents[1])
    return {
        name: Place(
            name=name,
            scratch=f"{out}/sites/{name}/scratch",
            storage=f"{out}/sites/{name}/storage",
            url="file://",
            workers=place.workers,
            tools=str(TOOLS),
            env=env,
            sees_submit_host=True,
        )
        for name, place in example_places().items()
    }


def _joined_path(*parts: str) -> str:
    """Directories of several PATHs in order, each once."""
    return ":".join(dict.fromkeys(d for part in parts for d in part.split(":") if d))


def testbed_places(path: Path) -> dict[str, Place]:
    """The sites that a running test bed describes in its ``testbed.json``.

    Raises ExampleError for a file that is none.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        environment = described["transfer_env"]
        search = _joined_path(described["tools_bin"], environment.get("PATH", ""), SYSTEM_PATH)
        everywhere = {"PATH": search}
        if "pegasus_home" in described:  # pegasus-plan asks where each site has kickstart
            everywhere["PEGASUS_HOME"] = described["pegasus_home"]
        return {
            name: Place(
                name=name,
                **{key: described["sites"][name][key] for key in ("scratch", "storage", "url")},
                workers=described["sites"][name]["workers"],
                tools=str(TOOLS),
                # Transfers are driven from the submit host: only it needs the proxy.
                env={**(environment if name == "local" else {}), **everywhere},
                sees_submit_host=True,
            )
            for name in SITES
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExampleError(f"{path}: found {error!r}, expected a testbed.json") from error
