"""What ``adon doctor`` mends of a configuration's files, and whom it asks."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cli_world import adon, config_file

from adon.cli import doctor
from adon.config.adon_yml import load_config
from adon.machine import service_account


def test_doctor_fixes_modes_and_folders(tmp_path: Path) -> None:
    state, archive = tmp_path / "s.sqlite", tmp_path / "new" / "a.sqlite"
    state.touch(0o644)
    broker = {"state": str(state), "archive": str(archive), "listen": "127.0.0.1:9"}
    file = config_file(tmp_path, broker=broker)
    assert f"{state} is open to others" in adon("doctor", "--config", file).out
    ran = adon("doctor", "--config", file, "--fix")
    assert f"closed {state} to others" in ran.err and f"made the folder {archive.parent}" in ran.err
    assert "is open to others" not in ran.out
    assert stat.S_IMODE(state.stat().st_mode) == 0o600 and archive.parent.is_dir()
    assert "closed" not in adon("doctor", "--config", file, "--fix").err


def test_doctor_says_that_the_broker_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADON_BROKER", raising=False)
    file = config_file(tmp_path, broker={"listen": "127.0.0.1:9"})
    said = adon("doctor", "--config", file).out
    assert "without  the broker at http://127.0.0.1:9: cannot be reached: " in said


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone becomes another user")
def test_root_looks_as_the_user_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_account, "SERVICE", (tmp_path, ""))
    monkeypatch.setattr(service_account, "_USER", "nobody")
    with TemporaryDirectory() as folder:  # below one that everybody may enter
        shutil.chown(folder, "nobody")
        state, archive = Path(folder, "s.sqlite"), tmp_path / "a.sqlite"
        state.touch(0o600)  # root's
        broker = {"state": str(state), "archive": str(archive), "listen": "127.0.0.1:9"}
        file = config_file(tmp_path, broker=broker)
        ran = adon("doctor", "--config", file)
        for path in (state, archive):
            assert f"{path} cannot be written by nobody" in ran.out
        shutil.chown(state, "nobody")
        made = Path(folder, "new", "a.sqlite")
        file = config_file(tmp_path, broker=broker | {"archive": str(made)})
        ran = adon("doctor", "--config", file, "--fix")
        assert "cannot be written" not in ran.out
        assert f"{made} can be written by nobody" in ran.out
    assert os.geteuid() == 0


def test_doctor_asks_a_broker_with_tls_by_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADON_BROKER", raising=False)
    tls = {"certificate": "broker.pem", "key": "broker.key"}
    config = load_config(config_file(tmp_path, security={"tls": tls}))
    assert doctor._broker(config).url.startswith("https://")
    monkeypatch.setenv("ADON_BROKER", "")  # as if it were not set
    assert doctor._broker(config).url.startswith("https://")
    monkeypatch.setenv("ADON_BROKER", "http://192.0.2.9:8470")
    assert doctor._broker(config).url == "http://192.0.2.9:8470"
