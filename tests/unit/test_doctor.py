"""What ``adon doctor`` mends of a configuration's files, and whom it asks."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cli_world import adon, config_file

from adon.cli import doctor
from adon.config.adon_yml import load_config


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


def test_doctor_asks_a_broker_with_tls_by_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADON_BROKER", raising=False)
    tls = {"certificate": "broker.pem", "key": "broker.key"}
    config = load_config(config_file(tmp_path, security={"tls": tls}))
    assert doctor._broker(config).url.startswith("https://")
