"""``adon dashboard``: copies of what a demo left."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from adon.cli.dashboard import _copied
from adon.cli.main import main
from adon.config.adon_yml import load_config
from monitors.archive.archive import Archive, Measurement
from network_provisioner.base.errors import InputError
from network_provisioner.stores.opening import open_store

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/adon.yml"
MEASURED = Measurement("m1", "rtt", "mu>tacc", 0.05, "s", 1e9, "test")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    folder = tmp_path / ".adon"
    (folder / "testbed").mkdir(parents=True)
    config = yaml.safe_load(EXAMPLE.read_text())
    config["controller"] = {"driver": "openflow", "listen": "10.254.9.1:6653"}
    config["broker"] = {"listen": "127.0.0.1:1", "state": "x", "archive": "y"}
    (folder / "testbed" / "adon.yml").write_text(yaml.safe_dump(config))
    with Archive(folder / "archive.sqlite") as archive:
        archive.record(MEASURED)
    open_store(str(folder / "testbed" / "broker.sqlite")).close()
    return folder


def test_the_demos_own_files_are_not_used(demo: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    config = load_config(_copied(demo, "127.0.0.1:9001", copies))
    assert config.controller.driver == "simulated"
    assert config.broker.listen == "127.0.0.1:9001"
    for file in (config.broker.state, config.broker.archive):
        assert Path(file).parent == copies
    with Archive(config.broker.archive) as archive:
        assert archive.query("rtt") == [MEASURED]
        archive.record(Measurement("m2", "rtt", "mu>tacc", 0.05, "s", 1e9, "test"))
    with Archive(demo / "archive.sqlite", read_only=True) as archive:
        assert archive.query("rtt") == [MEASURED]


def test_a_demo_that_was_cut_short_has_no_state_yet(demo: Path, tmp_path: Path) -> None:
    (demo / "testbed" / "broker.sqlite").unlink()
    config = load_config(_copied(demo, "127.0.0.1:9001", tmp_path))
    assert not Path(config.broker.state).exists()


def test_without_a_demo_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--demo", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "found no state of a demo" in said.err and said.err.count("\n") == 1


def test_where_it_cannot_listen(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for listen, message in (
        ("nowhere", "--listen: found 'nowhere'"),
        ("192.0.2.1:9", "192.0.2.1:9"),
    ):
        assert main(["dashboard", "--demo", str(demo), "--listen", listen]) == 2
        output = capsys.readouterr()
        assert message in output.err and output.err.count("\n") == 1
        assert output.out == ""


def test_what_is_no_archive_is_refused(demo: Path, tmp_path: Path) -> None:
    (demo / "archive.sqlite").write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(InputError, match=r"archive\.sqlite: cannot be read"):
        _copied(demo, "127.0.0.1:9001", tmp_path)
