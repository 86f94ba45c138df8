"""GridFTP between the testbed's sites on loopback, with the real programs."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gridftp_rig import gridftp_programs

from adon.machine import box
from examples.soykb.scenario import LAYOUT
from examples.testbed.gridftp import GridFtp, endpoints
from network_provisioner.base.errors import AdonError, MissingError

pytestmark = pytest.mark.component

HERE = Path(__file__).resolve()


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridFtp]:
    grid = GridFtp(endpoints(LAYOUT), tmp_path_factory.mktemp("grid"), gridftp_programs())
    grid.start()
    yield grid
    grid.stop()


class TestLoopback:
    def test_its_credential_its_port_and_a_second_start(
        self, loopback: GridFtp, tmp_path: Path
    ) -> None:
        proxy = Path(loopback.transfer_env()["X509_USER_PROXY"])
        assert proxy.stat().st_mode & 0o777 == 0o600
        assert proxy.parent.stat().st_mode & 0o777 == 0o700
        with pytest.raises(AdonError, match="globus-gridftp-server"):
            GridFtp(loopback.sites, tmp_path / "second", gridftp_programs()).start()
        loopback.start()
        loopback.stop()
        loopback.stop()
        loopback.start()


def test_programs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="globus-gridftp-server is not in"):
        GridFtp(endpoints(LAYOUT), tmp_path, tmp_path).start()


@pytest.mark.root
@pytest.mark.long
@pytest.mark.skipif(os.environ.get("ADON_TEST_AS") == "nobody", reason="this is that run")
def test_loopback_as_an_ordinary_user(tmp_path: Path) -> None:
    """The servers and pegasus-transfer as an account other than root."""
    reason = box.can_box()
    if reason is not None:
        pytest.skip(reason)
    nobody = pwd.getpwnam("nobody")
    words = ["unshare", "--user", f"--map-user={nobody.pw_uid}", "--map-group=65534"]
    words += [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    words += [f"--basetemp={tmp_path / 'nobody'}", str(HERE)]
    done = subprocess.run(
        ["env", "ADON_TEST_AS=nobody", *words],
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-8000:]
