"""ADON installed into a real Pegasus, of which this has a copy of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pegasus_world import CACHE, copy_pegasus, make_pegasus_case, tree
from planner_world import ROOT, Case

from adon.machine.packages import ensure

pytestmark = [pytest.mark.component, pytest.mark.long, pytest.mark.pegasus]
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

    @property
    def before_5_1_3(self) -> bool:
        done = subprocess.run(
            [self.home / "bin/pegasus-version"], env=self.env, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        version = done.stdout.partition("-")[0].split(".")
        return tuple(int(part) for part in version[:3]) < (5, 1, 3)

    def adon(self, *arguments: str) -> str:
        """Run ``adon``; what it prints."""
        code = "import sys; from adon.cli.main import main; sys.exit(main())"
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

    def scripts(self) -> dict[str, set[str]]:
        """The programs of PRE and POST in the DAG that was planned last, by job."""
        [dag] = (self.case.root / "submit").rglob("mini-0.dag")
        scripts: dict[str, set[str]] = {}
        for job, path in re.findall(r"^SCRIPT \w+ (\S+) (\S+)", dag.read_text(), re.MULTILINE):
            scripts.setdefault(job, set()).add(path)
        return scripts

    def hooked(self, folder: Path) -> bool:
        """Whether every job has both scripts of ``folder``; otherwise none has either."""
        ours = {str(folder / name) for name in ("adon-pre", "adon-exitcode")}
        theirs = {str(self.home / "bin/pegasus-exitcode")}
        scripts = self.scripts()
        every = all(paths == ours for paths in scripts.values())
        assert len(scripts) > 4 and (every or all(f == theirs for f in scripts.values()))
        return every


@pytest.fixture
def pegasus(tmp_path: Path) -> Iterator[Set]:
    home = copy_pegasus(tmp_path / "pegasus")
    case = make_pegasus_case(tmp_path / "wf", home)

    def sites(document: Any) -> None:
        for site in document["sites"]:
            rate = "1000000000" if site["name"] == "tacc" else "1000"
            hints = {"adon.workers": "4", "adon.rate": rate}
            site["profiles"]["pegasus"].update(hints)

    case.change("sites", sites)
    user = tmp_path / "user"
    user.mkdir()
    yield Set(home, user, case)


def test_planning_goes_on_as_before_with_sites_from_adon(pegasus: Set) -> None:
    before = tree(pegasus.home)
    out = pegasus.adon("install", "pegasus", "--yes")
    assert "verified: ADON answered: first at adon-b, second at adon-b" in out
    assert "nothing to do" in pegasus.adon("install", "pegasus", "--home", str(pegasus.home))
    jar = pegasus.home / "share/pegasus/java/adon-pegasus.jar"
    jar.write_bytes(jar.read_bytes()[:1000])
    assert "verified: ADON answered" in pegasus.adon("install", "pegasus", "--yes")
    sites, selector, _ = pegasus.plan()
    assert selector == "org.adon.pegasus.AdonSiteSelector"
    assert sites == dict.fromkeys(("ID1", "ID2", "ID3", "ID4"), "tacc")
    programs = pegasus.home / "share/pegasus/adon"
    assert pegasus.hooked(programs)
    pegasus.adon("install", "pegasus", "--undo", "--yes")
    assert tree(pegasus.home) == before
    sites, selector, _ = pegasus.plan()
    assert (len(sites), selector) == (4, "")
    assert not pegasus.hooked(programs)


def test_a_users_own_settings_have_the_last_word(pegasus: Set) -> None:
    pegasus.adon("install", "pegasus", "--yes")
    with (pegasus.case.root / "pegasus.properties").open("a") as stream:
        stream.write("pegasus.selector.site = RoundRobin\ndagman.pre = /bin/true\n")
    sites, selector, _ = pegasus.plan()
    assert selector == "RoundRobin"
    assert set(sites.values()) == {"mu", "tacc"}
    assert all("/bin/true" in paths for paths in pegasus.scripts().values())


def test_the_callout_places_every_job_as_the_mapping_says_and_warns_once(pegasus: Set) -> None:
    out = pegasus.adon("install", "pegasus", "--only", "selector", "--callout", "--yes")
    assert "verified: ADON answered: first at adon-b, second at adon-b" in out
    sites, selector, log = pegasus.plan()
    assert selector == "NonJavaCallout"
    assert sites == dict.fromkeys(("ID1", "ID2", "ID3", "ID4"), "tacc")
    assert log.count("[Site Selector stderr]") == 1
    assert f"[ERROR]  [Site Selector stderr] {WARNING}" in log
    assert "(4 jobs: 20 s)" in log
    assert not pegasus.hooked(pegasus.home / "share/pegasus/adon")
    pegasus.adon("install", "pegasus", "--undo", "--yes")


def test_one_user_installs_without_touching_pegasus(pegasus: Set) -> None:
    before = tree(pegasus.home)
    (pegasus.user / ".bashrc").write_text("PS1=x\n")
    if pegasus.before_5_1_3:
        with pytest.raises(AssertionError, match=r"is not ADON's; before 5.1.3 Pegasus reads no "):
            pegasus.adon("install", "pegasus", "--me", "--yes")
        pegasus.adon("install", "pegasus", "--me", "--only", "selector", "--yes")
        out = pegasus.adon("install", "pegasus", "--properties", "pegasus.properties", "--yes")
        assert "verified: PRE and POST around its" in out
        sites, selector, _ = pegasus.plan(". ~/.bashrc")
        assert selector == "org.adon.pegasus.AdonSiteSelector"
        assert sites == dict.fromkeys(("ID1", "ID2", "ID3", "ID4"), "tacc")
        assert pegasus.hooked(pegasus.case.root / "pegasus.adon")
        return
    out = pegasus.adon("install", "pegasus", "--me", "--yes")
    assert "verified: ADON answered: first at adon-b, second at adon-b" in out
    sites, selector, _ = pegasus.plan(". ~/.bashrc")
    assert selector == "org.adon.pegasus.AdonSiteSelector"
    assert sites == dict.fromkeys(("ID1", "ID2", "ID3", "ID4"), "tacc")
    programs = pegasus.user / ".local/share/adon"
    assert pegasus.hooked(programs)
    pegasus.adon("install", "pegasus", "--me", "--callout", "--yes")
    assert (pegasus.user / ".bashrc").read_text() == "PS1=x\n"
    _, selector, log = pegasus.plan(". ~/.bashrc")
    assert selector == "NonJavaCallout"
    assert WARNING in log
    assert pegasus.hooked(programs)
    pegasus.adon("install", "pegasus", "--me", "--undo", "--yes")
    assert not (pegasus.user / ".pegasusrc").exists()
    assert tree(pegasus.home) == before


def test_a_post_of_the_users_own_is_kept_and_said(pegasus: Set) -> None:
    """Pegasus has no room for both: the hooks' POST does not run then."""
    # The second is read before 5.1.3, too.
    for file in (pegasus.user / ".pegasusrc", pegasus.case.root / "pegasus.properties"):
        with file.open("a") as stream:
            stream.write("dagman.post = mine\ndagman.post.path.mine = /bin/true\n")
    out = pegasus.adon("install", "pegasus", "--only", "hooks", "--yes")
    assert "dagman.post = mine, which runs instead of pegasus-exitcode" in out
    pegasus.plan()
    ours = str(pegasus.home / "share/pegasus/adon/adon-pre")
    assert all(paths == {ours, "/bin/true"} for paths in pegasus.scripts().values())


def test_one_catalog_has_hooks_that_this_pegasus_checks_jobs_with(pegasus: Set) -> None:
    """PRE and POST are run as DAGMan would; versions of Pegasus take other options."""
    catalog = pegasus.case.root / "transformations.yml"
    before = catalog.read_bytes()
    out = pegasus.adon("install", "pegasus", "--catalog", str(catalog), "--yes")
    assert re.search(r"^verified: PRE and POST around its \d transfer jobs$", out, re.MULTILINE)
    pegasus.adon("install", "pegasus", "--catalog", str(catalog), "--undo", "--yes")
    assert catalog.read_bytes() == before
