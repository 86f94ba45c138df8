"""ADON installed into a real Pegasus, of which this has a copy of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from planner_world import ROOT, Case, by_file, make_case

from adon.testbed.packages import ensure
from pegasus_hooks import pegasus_plan
from pegasus_hooks.install.home import home_at, place_for_all
from pegasus_hooks.install.installing import carry_out, changes_to_undo

pytestmark = [pytest.mark.component, pytest.mark.pegasus]
WARNING = "adon: this planner sleeps about 5 s"


@dataclass(frozen=True)
class Set:
    """A Pegasus, somebody who uses it, and what they plan."""

    home: Path
    user: Path
    case: Case

    @property
    def env(self) -> dict[str, str]:
        condor = ensure("condor", progress=print) / "wrap"  # the planner looks for its programs
        path = os.pathsep.join([str(self.home / "bin"), str(condor), os.environ["PATH"]])
        kept = {k: v for k, v in os.environ.items() if not k.startswith("_PEGASUS")}
        kept.pop("CLASSPATH", None)
        own = {"PATH": path, "HOME": str(self.user), "SHELL": "/bin/bash"}
        # Java asks the system for a user's home, not the variable.
        own["JAVA_TOOL_OPTIONS"] = f"-Duser.home={self.user}"
        return {**kept, **own, "CONDOR_CONFIG": "ONLY_ENV", "XDG_CACHE_HOME": str(CACHE)}

    def adon(self, *arguments: str) -> str:
        """Run ``adon``; what it prints."""
        code = "import sys; from adon.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", code, *arguments]
        env = {**self.env, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, env=env, cwd=self.case.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def plan(self, start: str = "", **env: str) -> tuple[dict[str, str], str, str]:
        """``pegasus-plan``, typed as ever, after the shell's ``start``: the sites of the jobs, the
        selector in the submit directory's properties, and what the planner said."""
        submit = self.case.root / "submit"
        shutil.rmtree(submit, ignore_errors=True)
        typed = "pegasus-plan --sites mu,tacc --output-sites local --dir submit workflow.yml 2>&1"
        done = subprocess.run(
            ["/bin/bash", "-c", f"{start}\n{typed}"], env={**self.env, **env}, cwd=self.case.root,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        sites = {}
        for file in submit.rglob("*.sub"):
            said = dict(
                re.findall(r'^\+(pegasus_\w+)\s*=\s*"(.*)"', file.read_text(), re.MULTILINE)
            )
            if said.get("pegasus_wf_dax_job_id", "null") != "null":
                sites[said["pegasus_wf_dax_job_id"]] = said["pegasus_site"]
        [properties] = submit.rglob("pegasus.*.properties")
        selector = re.search(r"^pegasus\.selector\.site=(.*)", properties.read_text(), re.MULTILINE)
        return sites, selector[1] if selector else "", done.stdout


CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


@pytest.fixture
def pegasus(tmp_path: Path) -> Iterator[Set]:
    planner = pegasus_plan.find_planner()
    assert planner is not None
    home = tmp_path / "pegasus"
    shutil.copytree(planner.resolve().parents[1], home, symlinks=True)
    place = place_for_all(home_at(home))  # the one that was copied may have ADON in it
    carry_out(place, changes_to_undo(place))
    case = make_case(tmp_path / "wf", by_file)

    def sites(document: Any) -> None:
        for site in document["sites"]:
            site["profiles"]["env"] = {"PEGASUS_HOME": str(home)}
            rate = "1000000000" if site["name"] == "tacc" else "1000"
            hints = {"auxillary.local": "true", "adon.workers": "4", "adon.rate": rate}
            site["profiles"]["pegasus"].update(hints)

    case.change("sites", sites)
    case.change("replicas", lambda d: d["replicas"][0]["pfns"][0].update(site="local"))
    (case.root / "pegasus.properties").write_text("pegasus.data.configuration = sharedfs\n")
    user = tmp_path / "user"
    user.mkdir()
    yield Set(home, user, case)


def tree(root: Path) -> Mapping[str, object]:
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.is_file() and path.read_bytes())
        for path in root.rglob("*")
        if "__pycache__" not in path.parts
    }


def test_planning_goes_on_as_before_with_sites_from_adon(pegasus: Set) -> None:
    before = tree(pegasus.home)
    out = pegasus.adon("install", "pegasus", "--yes")
    assert "verified: ADON answered: first at adon-b, second at adon-b" in out
    assert "nothing to do" in pegasus.adon("install", "pegasus", "--home", str(pegasus.home))
    sites, selector, _ = pegasus.plan()
    assert selector == "org.adon.pegasus.AdonSiteSelector"
    assert sites == dict.fromkeys(("ID1", "ID2", "ID3", "ID4"), "tacc")
    pegasus.adon("install", "pegasus", "--undo", "--yes")
    assert tree(pegasus.home) == before
    sites, selector, _ = pegasus.plan()
    assert (len(sites), selector) == (4, "")


def test_a_users_own_settings_have_the_last_word(pegasus: Set) -> None:
    pegasus.adon("install", "pegasus", "--yes")
    with (pegasus.case.root / "pegasus.properties").open("a") as stream:
        stream.write("pegasus.selector.site = RoundRobin\n")
    sites, selector, _ = pegasus.plan()
    assert selector == "RoundRobin"
    assert set(sites.values()) == {"mu", "tacc"}


def test_the_callout_places_every_job_as_the_mapping_says_and_warns_once(pegasus: Set) -> None:
    out = pegasus.adon("install", "pegasus", "--callout", "--yes")
    assert "verified: ADON answered: first at adon-b, second at adon-b" in out
    sites, selector, log = pegasus.plan()
    assert selector == "NonJavaCallout"
    assert sites == dict.fromkeys(("ID1", "ID2", "ID3", "ID4"), "tacc")
    assert log.count("[Site Selector stderr]") == 1
    assert f"[ERROR]  [Site Selector stderr] {WARNING}" in log
    assert "(4 jobs: 20 s)" in log
    pegasus.adon("install", "pegasus", "--undo", "--yes")


def test_one_user_installs_without_touching_pegasus(pegasus: Set) -> None:
    before = tree(pegasus.home)
    (pegasus.user / ".bashrc").write_text("PS1=x\n")
    out = pegasus.adon("install", "pegasus", "--user", "--yes")
    assert "verified: ADON answered: first at adon-b, second at adon-b" in out
    sites, selector, _ = pegasus.plan(". ~/.bashrc")
    assert selector == "org.adon.pegasus.AdonSiteSelector"
    assert sites == dict.fromkeys(("ID1", "ID2", "ID3", "ID4"), "tacc")
    pegasus.adon("install", "pegasus", "--user", "--callout", "--yes")
    assert (pegasus.user / ".bashrc").read_text() == "PS1=x\n"
    _, selector, log = pegasus.plan(". ~/.bashrc")
    assert selector == "NonJavaCallout"
    assert WARNING in log
    pegasus.adon("install", "pegasus", "--user", "--undo", "--yes")
    assert not (pegasus.user / ".pegasusrc").exists()
    assert tree(pegasus.home) == before
