"""What the broker keeps is its owner's alone, unless somebody said otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adon.config.adon_yml import parse_config, used_files
from monitors.archive.archive import Archive
from monitors.measurements.run_store import MeasuringStore
from monitors.watcher import registry
from network_provisioner.base.errors import InputError
from network_provisioner.base.private import make_private, open_lock, read_secret
from network_provisioner.stores.sqlite import SqliteStore

NETWORK: dict[str, list[object]] = {"nodes": [], "links": []}


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}


def test_files_are_made_for_their_owner(tmp_path: Path) -> None:
    state, archive = SqliteStore(tmp_path / "s/state"), Archive(tmp_path / "a/archive")
    runs = MeasuringStore(tmp_path / "m/measuring")
    registry.register(tmp_path / "r", tmp_path / "hooks.json", tmp_path, "w")
    assert len(list((tmp_path / "s").iterdir())) > 2  # SQLite's own and the lock, too
    for name in "samr":
        assert modes(tmp_path / name) == {0o700, 0o600}
    for store in (state, archive, runs):
        store.close()


def test_what_an_admin_opened_stays_open_and_is_said_but_for_the_lock(tmp_path: Path) -> None:
    for name in ("state", "archive", "state.lock"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o664)
    SqliteStore(tmp_path / "state").close()
    Archive(tmp_path / "archive").close()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o664
    assert (tmp_path / "state.lock").stat().st_mode & 0o777 == 0o600
    broker = {name: str(tmp_path / name) for name in ("state", "archive")}
    config = parse_config({"topology": NETWORK, "broker": broker}, "adon.yml")
    open_ones = [words for words in used_files(config, tmp_path / "adon.yml") if "0664" in words]
    assert len(open_ones) == 2


def test_what_root_makes_is_the_folders_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _, user, group: owners.append((user, group)))
    folder = tmp_path.stat()
    make_private(tmp_path / "state")
    for _ in range(2):  # once, where it is made
        open_lock(tmp_path / "state.lock").close()
    assert owners == [(folder.st_uid, folder.st_gid)] * 2


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff" * 20, b"s" * 5000])
def test_what_is_no_secret_is_not_quoted(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_secret(file, "a password")
    assert str(caught.value).removeprefix(f"{file}: ") in (
        "found something else, expected one line with a password",
        "cannot be read: it is no text in UTF-8, expected a password",
    )
    file.write_bytes(b" with blanks \r\n")
    assert read_secret(file, "a password") == " with blanks "
