"""``adon state``: what is kept, looked at and moved."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from cli_world import adon, refusal
from store_suite import transit

from network_provisioner.base.model import TransitState
from network_provisioner.stores.sqlite import SqliteStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / "a.sqlite")
    store.put_many([transit("a"), transit("b", TransitState.RELEASED), transit("c")])
    store.put_document("policy", "p", {"x": 1})
    store.put_document("policy", "p", {"x": 2})
    store.put_document("template", "t", {})
    store.delete_document("template", "t")
    store.close()
    return tmp_path / "a.sqlite"


def test_show(file: Path) -> None:
    shown = adon("state", "show", str(file)).out.splitlines()
    assert [line.split() for line in shown[1:]] == [
        ["transits", "held", "2"], ["transits", "released", "1"], ["documents", "policy", "1"],
    ]  # fmt: skip
    assert json.loads(adon("state", "show", str(file), "--json").out) == {
        "transits": {"held": 2, "released": 1},
        "documents": {"policy": 1},
        "unreadable": {},
    }
    file.write_bytes(file.read_bytes().replace(b'"src"', b'"s\xffc"', 1))
    ran = adon("state", "show", file, "--columns", "kind,count")
    assert ran.code == 1 and "cannot be read" not in ran.out


def test_copy(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "b.sqlite"
    assert adon("state", "copy", str(file), str(target)).out == (
        "copied 3 transits and 4 versions of documents\n"
    )
    for place in (file, target):
        store = SqliteStore(place)
        assert [t.id for t in store.each()] == ["a", "b", "c"]
        assert [d.body for d in store.history("policy", "p")] == [{"x": 1}, {"x": 2}]
        store.close()
    said = refusal("state", "copy", str(file), str(target))
    assert "expected an empty one" in said


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nowhere.sqlite", "nowhere.sqlite: found no such file, expected a broker's state"),
        ("mysql://u:tops3cret@h/d", "found the URL of something else (mysql:)"),
        ("postgresql://u:tops3cret@127.0.0.1:9/d", "postgresql://u@127.0.0.1:9/d: "),
    ],
)
def test_what_is_no_state(place: str, words: str) -> None:
    message = refusal("state", "show", place)
    assert words in message and "tops3cret" not in message


def test_a_backup_goes_to_a_share_without_hard_links(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert adon("state", "backup", file, tmp_path / "b.sqlite").out.startswith("copied 3 transits")
    assert "released      1" in adon("state", "show", tmp_path / "b.sqlite").out


def test_a_broker_may_use_the_state_meanwhile(file: Path, tmp_path: Path) -> None:
    store, backup = SqliteStore(file), tmp_path / "backup.sqlite"
    store.put_many([transit("d")])
    reader = SqliteStore(file, reading=True)
    store.put_many([transit("e")])
    assert [t.id for t in reader.each()] == ["a", "b", "c", "d"]  # as it was when it was opened
    reader.close()
    assert "held          4" in adon("state", "show", str(file)).out
    assert adon("state", "backup", str(file), str(backup)).out.startswith("copied 5 transits")
    assert backup.stat().st_mode & 0o777 == 0o600
    assert "expected a new name" in refusal("state", "backup", str(file), str(backup))
    assert "has it; expected one broker" in refusal("state", "copy", str(backup), str(file))
    store.put_many([transit("f")])
    store.close()
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".backup")]
    assert "held          4" in adon("state", "show", str(backup)).out
