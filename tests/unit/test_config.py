from __future__ import annotations

import pytest

from adon.config.adon_yml import parse_config
from adon.config.sections import split_address
from network_provisioner.base.errors import InputError

GOOD = {"topology": {"nodes": [], "links": []}, "broker": {"listen": "127.0.0.1:9000"}}


def test_defaults_are_loopback_and_simulated() -> None:
    config = parse_config({"topology": GOOD["topology"]}, "adon.yml")
    assert config.controller.driver == "simulated"
    assert config.broker.listen.startswith("127.0.0.1:")


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:70000", ":80", "h:x"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        split_address(address, "x")
