"""A whole testbed: network, data transfer nodes and pool, up and down together.

With the real network it has to run inside a box (:mod:`adon.machine.box`); without, everything
listens on loopback and the broker's controller is simulated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from examples.testbed.gridftp import GridFtp, endpoints
from examples.testbed.irods import DataZone, ZoneSettings
from examples.testbed.layout import HUB_ADDRESS, Layout, management_address
from examples.testbed.network import Network
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import COLLECTOR_PORT, SiteSpec
from examples.testbed.procs import MARK
from pegasus_hooks.pegasus_plan import find_planner
from pegasus_hooks.prepost.tuning import AT_ONCE

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Programs:
    """Directories of the private packages, as :func:`adon.machine.packages.ensure` returns them.

    ``tools`` has what the workflow's jobs call; ``openvswitch`` is None if the network is
    simulated.
    """

    condor: Path
    gridftp: Path
    tools: Path
    openvswitch: Path | None = None


class Testbed:
    """A context manager: up on entry, all down on exit."""

    def __init__(
        self,
        layout: Layout,
        run_dir: Path,
        programs: Programs,
        progress: Progress,
        zone: ZoneSettings | None = None,
    ) -> None:
        self.layout = layout
        self.run_dir = run_dir.resolve()
        self.programs = programs
        self.real = programs.openvswitch is not None
        self._progress = progress
        self._stack = ExitStack()
        self.pool = self._make_pool()
        self.gridftp = GridFtp(endpoints(layout), self.run_dir, programs.gridftp / "wrap")
        self.zone = DataZone(zone, layout, self.run_dir) if zone else None

    def _make_pool(self) -> Pool:
        specs = {}
        for site in self.layout.sites:
            nodes = site.worker_nodes if self.real else ()
            netns = site.netns if self.real else None
            if not nodes:
                specs[site.name] = SiteSpec(
                    workers=site.workers,
                    netns=netns,
                    address=management_address(site.number) if netns else self._hub_address,
                    interface="dp0" if self.real else "lo",
                )
            for node, number in zip(nodes, _divided(site.workers, len(nodes)), strict=True):
                specs[f"{site.name}-{node.name}"] = SiteSpec(
                    workers=number,
                    netns=node.netns,
                    address=management_address(self.layout.managed()[node.netns]),
                    interface="dp0",
                    attributes={"PegasusSite": site.name},
                )
        port = COLLECTOR_PORT if self.real else 0
        return Pool(self.run_dir / "pool", self.programs.condor, specs, self._hub_address, port)

    @property
    def _hub_address(self) -> str:
        return HUB_ADDRESS if self.real else "127.0.0.1"

    def __enter__(self) -> Self:
        """Network, then data transfer nodes, then the pool.

        Raises AdonError; what was up until then is down again.
        """
        progress = self._progress
        try:
            if self.programs.openvswitch is not None:
                progress(f"network: {self.layout}")
                programs = self.programs.openvswitch / "wrap"
                self._stack.enter_context(Network(self.layout, programs, self.run_dir))
            progress(f"GridFTP: a data transfer node at each of {len(self.layout.sites)} sites")
            self.gridftp.start()
            self._stack.callback(self.gridftp.stop)
            if self.zone:
                self.zone.start()
                self._stack.callback(self.zone.stop)
            progress("HTCondor: a pool with an execute node at each site")
            self.pool.up()
            self._stack.callback(self.pool.down)
            for site in self.layout.sites:
                for part in ("scratch", "storage"):
                    (self.site_dir(site.name) / part).mkdir(parents=True, exist_ok=True)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Bring everything down, last first."""
        self._stack.close()

    def site_dir(self, site: str) -> Path:
        """The directory that stands for a site's disks."""
        return self.run_dir / "sites" / site

    def describe(self) -> dict[str, Any]:
        """What a workflow generator needs to know, JSON-ready: ``testbed.json``."""
        transfers = self.gridftp.transfer_env()
        if self.zone:
            transfers |= self.zone.transfer_env(transfers["PATH"])
        return {
            "network": "openflow" if self.real else "simulated",
            "root": str(self.run_dir),
            "sites": {
                site.name: {
                    "scratch": str(self.site_dir(site.name) / "scratch"),
                    "storage": str(self.site_dir(site.name) / "storage"),
                    "url": self.gridftp.url(site.name),
                    "workers": site.workers,
                }
                for site in self.layout.sites
            },
            "topology": self.layout.topology(),
            # Pegasus starts DAGMan itself, with the environment of site local and no other. Its
            # pegasus-transfer begins without a sleep, as after the hooks of ADON.
            "transfer_env": {
                **transfers,
                "PYTHONPATH": str(AT_ONCE),
                MARK: str(self.pool.run_dir),
            },
            **({"zone": self.zone.describe()} if self.zone else {}),
            "tools_bin": str(self.programs.tools / "wrap"),
            **_pegasus(),
        }

    def write(self) -> Path:
        """Write ``testbed.json`` into the run directory and return its path."""
        file = self.run_dir / "testbed.json"
        file.write_text(json.dumps(self.describe(), indent=1), encoding="utf-8")
        return file


def _divided(number: int, among: int) -> list[int]:
    return [number // among + (n < number % among) for n in range(among)]


def _pegasus() -> dict[str, str]:
    """Where a real Pegasus is installed: all sites share this machine's, where it has one."""
    planner = find_planner()
    return {"pegasus_home": str(planner.resolve().parents[1])} if planner else {}
