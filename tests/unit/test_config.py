from __future__ import annotations

from pathlib import Path

import pytest

from adon.config.adon_yml import load_config, parse_config
from adon.config.sections import split_address
from network_provisioner.base.errors import InputError

GOOD = {"topology": {"nodes": [], "links": []}, "broker": {"listen": "127.0.0.1:9000"}}


def test_defaults_are_loopback_and_simulated() -> None:
    config = parse_config({"topology": GOOD["topology"]}, "adon.yml")
    assert config.controller.driver == "simulated"
    assert config.broker.listen.startswith("127.0.0.1:")


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "adon.yml"
    file.write_text("topology: {nodes: [], links: []}\nbroker: {listen: '127.0.0.1:9000'}\n")
    assert load_config(file) == parse_config(GOOD, "x")


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path / "none.yml")
    (tmp_path / "b.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_config(tmp_path / "b.yml")


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:70000", ":80", "h:x"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        split_address(address, "x")
