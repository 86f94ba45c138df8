"""Where an example runs: example hosts, folders here, or the sites of a running test bed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from network_provisioner.base.errors import InputError

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Place:
    """One site: its directories, the GridFTP server that serves both, and its workers.

    A file's URL is ``url`` + its absolute path. ``tools`` is the directory with the workflow's
    programs, ``packages`` that of those which come from packages; ``env`` the environment its jobs
    get. ``sees_submit_host``: its workers read and write the submit directory, so that HTCondor
    need not carry it there.
    """

    name: str
    scratch: str
    storage: str
    url: str
    workers: int
    tools: str
    packages: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    sees_submit_host: bool = False

    def file_url(self, path: str) -> str:
        """The URL of an absolute path."""
        return f"{self.url}{path}"


def example_places(example: str, hosts: Mapping[str, tuple[str, int]]) -> dict[str, Place]:
    """Hosts that exist nowhere: enough to read, select sites and plan. ``hosts`` has the name and
    the workers of each site's."""
    return {
        name: Place(
            name=name,
            scratch=f"/{name}/scratch/{example}",
            storage=f"/{name}/storage/{example}",
            url=f"gsiftp://{host}:2811",
            workers=workers,
            tools=f"/opt/{example}/bin",
            packages=f"/opt/{example}/bin",
        )
        for name, (host, workers) in hosts.items()
    }


def here_places(out: Path, workers: Mapping[str, int], tools: Path) -> dict[str, Place]:
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
            workers=number,
            tools=str(tools),
            env=env,
            sees_submit_host=True,
        )
        for name, number in workers.items()
    }


def _joined_path(*parts: str) -> str:
    """Directories of several PATHs in order, each once."""
    return ":".join(dict.fromkeys(d for part in parts for d in part.split(":") if d))


def testbed_places(path: Path, sites: Iterable[str], tools: Path) -> dict[str, Place]:
    """The sites that a running test bed describes in its ``testbed.json``.

    Raises InputError for an invalid file.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        environment = described["transfer_env"]
        packages = described["tools_bin"]
        search = _joined_path(packages, environment.get("PATH", ""), SYSTEM_PATH)
        everywhere = {"PATH": search}
        if "pegasus_home" in described:  # pegasus-plan asks where each site has kickstart
            everywhere["PEGASUS_HOME"] = described["pegasus_home"]
        return {
            name: Place(
                name=name,
                **{key: described["sites"][name][key] for key in ("scratch", "storage", "url")},
                workers=described["sites"][name]["workers"],
                tools=str(tools),
                packages=packages,
                # Transfers are driven from the submit host: only it needs the proxy.
                env={**(environment if name == "local" else {}), **everywhere},
                sees_submit_host=True,
            )
            for name in sites
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: found {error!r}, expected a testbed.json") from error
