"""The driver of docs/writing-a-driver.md does what the page says, and the page shows the driver."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_worlds import MBPS, WallClock, two_switches

from adon.config.sections import ControllerConfig
from adon.service.wiring import make_controller
from network_provisioner.base.controller import Circuit, Controller, ControllerError
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.topology.graph import Topology

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "driver" / "panel.py"
PATH = ("mu", "s1", "s2", "tacc")


class PanelRig(WallClock):
    """Two panels in a directory."""

    def __init__(self, directory: Path) -> None:
        self.topology: Topology = two_switches()
        self.directory = directory
        config = ControllerConfig(
            driver="panel:PanelDriver",
            options={"directory": str(directory), "look_every_s": 0.02},
        )
        self.controller: Controller = make_controller(config, self.topology)

    def restart_switches(self) -> None:
        for file in self.directory.glob("*.table.json"):
            file.unlink()

    def circuit(self, name: str = "a") -> Circuit:
        return Circuit(name, PATH, MBPS, 2 * MBPS, self.now() + 60)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As PYTHONPATH does it."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    yield
    sys.modules.pop("panel", None)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[PanelRig]:
    made = PanelRig(tmp_path)
    made.controller.start(10.0)
    yield made
    made.controller.stop()


class TestPanel(ControllerConformance):
    """Everything that every driver has to do."""


def test_a_panel_that_refuses_leaves_all_as_they_were(rig: PanelRig) -> None:
    rig.controller.apply([rig.circuit("before")])
    before = (rig.directory / "s1.table.json").read_text()
    (rig.directory / "s2.table.part").mkdir()
    with pytest.raises(ControllerError, match=r"^switch s2: .*Is a directory$"):
        rig.controller.apply([rig.circuit("before"), rig.circuit("more")][:0])
    assert (rig.directory / "s1.table.json").read_text() == before
    assert rig.controller.installed() == ["before"]


@pytest.mark.parametrize("text", ["{", "7", "{}"])
def test_a_panel_that_talks_nonsense_is_an_error(rig: PanelRig, text: str) -> None:
    rig.controller.stop()
    (rig.directory / "s2.table.json").write_text(text)
    with pytest.raises(ControllerError, match=r"s2\.table\.json"):
        rig.controller.start(1.0)
    (rig.directory / "s2.table.json").unlink()


def test_what_panels_count_is_counted(rig: PanelRig) -> None:
    (rig.directory / "s1.counts.json").write_text(json.dumps({"10": 4711}))
    counted = {(c.a, c.b): c.bytes for c in rig.controller.counters()}
    assert counted["s1", "s2"] == 4711 and counted["s2", "s1"] == 0


@pytest.mark.parametrize(
    ("driver", "options", "said"),
    [
        ("nowhere.at_all:Driver", {}, "No module named 'nowhere'"),
        ("panel:Missing", {}, "Missing"),
        ("panel:LOG", {}, "expected a class"),
        ("panel:PanelDriver", {}, "directory"),
        ("panel:PanelDriver", {"directory": "d", "colour": 1}, "colour"),
        ("collections:OrderedDict", {}, "OrderedDict"),
        ("broken:Driver", {}, "SyntaxError"),
        ("angry:Driver", {}, "ZeroDivisionError"),
        ("angry_to_make:Driver", {}, "ZeroDivisionError"),
        ("half:Driver", {}, "capabilities"),
    ],
)
def test_a_driver_that_cannot_be_had_is_one_line(
    driver: str, options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken.py").write_text("class Driver(:\n")
    (tmp_path / "angry.py").write_text("1 / 0\n")
    (tmp_path / "angry_to_make.py").write_text("def Driver(topology):\n    1 / 0\n")
    (tmp_path / "half.py").write_text("class Driver:\n    def __init__(self, t): pass\n")
    with pytest.raises(InputError) as caught:
        make_controller(ControllerConfig(driver=driver, options=options), two_switches())
    assert said in str(caught.value) and "controller.driver" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("driver", ["opnflow", "panel", "panel:", ":Driver", "a b:C", "a:b:c"])
def test_a_driver_name_that_is_none_is_refused(driver: str) -> None:
    with pytest.raises(ValueError, match="driver"):
        ControllerConfig(driver=driver)
