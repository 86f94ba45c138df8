"""A user of whom the system knows neither name nor home, as in a container."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from cli_world import adon

from monitors.workflows.discovery import of_user
from network_provisioner.base import account

WORKFLOW = """\
pegasus: "5.0"
name: tally
jobs: [{type: job, id: J1, name: count, uses: []}]
transformationCatalog:
  transformations:
  - {name: count, sites: [{name: condorpool, pfn: /bin/true, type: installed}]}
"""


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)


def test_who_has_no_entry_is_known_by_number(nobody: None) -> None:
    assert (account.home(), account.user_name()) == (Path("/"), str(os.getuid()))
    assert account.user_name(4711) == "4711"


def test_commands_need_neither_name_nor_home(
    nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workflow.yml").write_text(WORKFLOW)
    monkeypatch.chdir(tmp_path)
    assert adon("site", "map", "workflow.yml").code == 0
    assert "sharedScratch" in adon("plan", "workflow.yml").err  # it has no directory, and says so
    assert len(of_user(lambda: 0.0)) > 1
