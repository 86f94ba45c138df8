#!/usr/bin/env python3
"""Figure 18 of the thesis: the network gives each application the path that it needs.

    figure18.py [--simulated] [--out DIR]

SoyKB and Neuroblastoma move data between the same two sites, which a fast layer-2 overlay and the
slow routed network join. As root this happens on real Open vSwitch switches, with real TCP streams;
without, or with --simulated, in a simulated network. Writes figure18.html and figure18.json to DIR
(default: figure18) and says what happens when. Exit code 2 where it cannot be run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from adon.machine import box, packages
from examples.soykb.fig18.plot import draw
from examples.soykb.fig18.story import TEMPLATES, Event, Story, World, tell
from examples.soykb.fig18.worlds import RealWorld, SimulatedWorld
from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import IN_SWITCHES, OPENFLOW_LISTEN
from examples.testbed.network import Network
from network_provisioner.base.controller import Controller
from network_provisioner.base.errors import AdonError
from network_provisioner.broker import Broker
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.shaping.htb import TcShaper
from network_provisioner.controllers.shaping.shapes import CommandRunner
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.data import topology_from_dict

_TOPOLOGY = topology_from_dict(LAYOUT.topology())
_PATIENT_S = 60.0  # for the switches: the machine may be busy


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="figure18.py", description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="no real network")
    parser.add_argument("--out", type=Path, default=Path("figure18"), help="where to write")
    options = parser.parse_args()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        if box.inside():
            return _real(options.out)
        why = "--simulated" if options.simulated else box.can_box()
        if why is None:
            packages.ensure("openvswitch", progress=print)
            return box.run([sys.executable, *sys.argv], tied=True)
        print(f"simulated network: {why}")
        return _simulated(options.out)
    except (AdonError, OSError, TimeoutError, RuntimeError) as error:
        print(f"figure18.py: {error}", file=sys.stderr)
        return 2


def _simulated(out: Path) -> int:
    world: SimulatedWorld

    def clock() -> float:
        return 1e9 + world.elapsed()

    def granted(name: str) -> float:
        return broker.get(name).grant.granted_bps

    world = SimulatedWorld(granted)
    with tempfile.TemporaryDirectory() as state:
        broker = Broker(
            _TOPOLOGY,
            templates_from_dict(TEMPLATES),
            SimulatedController(_TOPOLOGY, clock=clock),
            SqliteStore(Path(state) / "broker.sqlite"),
            clock=clock,
        )
        return _tell(broker, world, out, real=False)


def _real(out: Path) -> int:
    with tempfile.TemporaryDirectory() as state:
        programs = packages.ensure("openvswitch", progress=print) / "wrap"
        print(f"network: {LAYOUT}", flush=True)
        with Network(LAYOUT, programs, Path(state)):
            controller: Controller = OpenFlowController(
                _TOPOLOGY,
                OPENFLOW_LISTEN,
                TcShaper(CommandRunner(IN_SWITCHES)),
                reply_timeout_s=_PATIENT_S,
                silent_after_s=_PATIENT_S,
            )
            broker = Broker(
                _TOPOLOGY,
                templates_from_dict(TEMPLATES),
                controller,
                SqliteStore(Path(state) / "broker.sqlite"),
            )
            with RealWorld(controller) as world:
                return _tell(broker, world, out, real=True)


def _tell(broker: Broker, world: World, out: Path, *, real: bool) -> int:
    broker.start(_PATIENT_S)
    try:
        story = tell(broker, world, _say)
    finally:
        broker.stop()
    _write(story, out, real)
    return 0


def _say(event: Event) -> None:
    print(f"{event.at_s:6.1f} s  {event.mark or '':3} {event.text}", flush=True)


def _write(story: Story, out: Path, real: bool) -> None:
    (out / "figure18.html").write_text(draw(story, real), encoding="utf-8")
    data = {"network": "openflow" if real else "simulated", **asdict(story)}
    (out / "figure18.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"written: {out / 'figure18.html'}, {out / 'figure18.json'}")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The OpenFlow library's threads cannot be stopped; everything of ours is closed by now.
    os._exit(code)
