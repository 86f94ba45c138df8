"""The tutorials: each command of a page, typed word for word and in order. Where Pegasus is on PATH
they plan and run, on a pool."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hooks_world import PATIENT_S, journal
from http_load import broker_process
from network_world import star
from pegasus_world import User, copy_pegasus, end_watchers
from planner_world import ROOT

from adon.machine.packages import ensure
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from examples.testbed.ports import free_port
from network_provisioner.client.broker import BrokerClient

pytestmark = [pytest.mark.e2e]

BIN = Path(sys.executable).parent  # .venv/bin
SITES = ("mu", "tacc", "iplant", "local")
# As the pages say; here they are elsewhere.
SOYKB, BROKER = "/tmp/soykb", "http://127.0.0.1:8470"
GIVEN_BACK = r"(\d+ released|no reservation that has not begun)\n\Z"


def blocks(page: str, language: str = "") -> list[str]:
    """A page's code blocks in a language, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    every = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for tag, block in every if tag == language]


(SCRIPT,) = blocks("docs/tutorial-scientist.md", "python")
LOOK, START, FOLLOW, AGAIN = blocks("docs/tutorial-scientist.md")
TRY, SEE, PLAN, RESERVE = blocks("docs/tutorial-admin.md")
SERVE, REQUEST, REFUSED = blocks("docs/tutorial-network.md")
MAKE, PLAN_SOYKB = (blocks("examples/soykb/README.md", "sh")[i] for i in (1, 2))


def scientist(folder: Path, sites: Path) -> Path:
    """A folder with what the tutorial says that is in it."""
    folder.mkdir()
    # Scratch of their own: Pegasus names a run's folder there by user, workflow and run alone.
    own = re.sub(r"(/scratch)$", rf"\1/{folder.name}", sites.read_text(), flags=re.MULTILINE)
    (folder / "sites.yml").write_text(own)
    (folder / "pegasus.properties").write_text("pegasus.data.configuration = sharedfs\n")
    (folder / "words.py").write_text(SCRIPT)
    return folder


def planned(runs: Path) -> Path:
    """The one submit directory below."""
    (run_dir,) = runs.glob("*/pegasus/*/run0001")
    return run_dir


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": f"{BIN}:/usr/bin:/bin"}


def typed(block: str, cwd: Path, code: int = 0, **more: str) -> str:
    """What a block of commands prints where there is no Pegasus."""
    done = subprocess.run(
        ["sh", "-ec", block], cwd=cwd, env=environment(cwd) | more, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def soykb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the admin's first block makes."""
    out = tmp_path_factory.mktemp("admin") / "soykb"
    typed(TRY.replace(SOYKB, str(out)), ROOT)
    return out


def test_the_demo_is_what_make_says() -> None:
    said = subprocess.check_output(["make", "-n", "demo"], cwd=ROOT, text=True)
    assert "-m examples.demo" in said


def test_a_workflow_is_written_and_its_sites_explained(soykb: Path, tmp_path: Path) -> None:
    ada = scientist(tmp_path / "ada", soykb / "sites.yml")
    out = typed(LOOK, ada)
    assert re.findall(r"^ID000000\d  (\w+) -> (?:mu|tacc), \w+$", out, re.MULTILINE) == [
        "wc", "wc", "cat"
    ]  # fmt: skip
    assert out.count("why: ") == 3


def test_an_admin_sees_the_placement_plans_it_and_reserves(soykb: Path, tmp_path: Path) -> None:
    out = typed(SEE, soykb)
    assert "ID0000004" in out and "why: " in out
    config = {"topology": star(*SITES), "controller": {"driver": "simulated"}}
    with broker_process(tmp_path, config) as url:
        out = typed(PLAN.replace(BROKER, url), soykb)
        assert Path(out.splitlines()[-1], "soykb-0.dag").is_file()
        out = typed(RESERVE, soykb)
    assert re.search(r"^stage_in_local_mu_0_0 .* local ", out, re.MULTILINE)
    assert re.search(GIVEN_BACK, out)


def test_a_network_engineer_runs_a_broker(tmp_path: Path) -> None:
    port, example = free_port(), tmp_path / "examples/adon.yml"
    example.parent.mkdir()
    example.write_text((ROOT / "examples/adon.yml").read_text().replace(":8470", f":{port}"))
    url, home = BROKER.replace("8470", str(port)), environment(tmp_path)
    words = ["sh", "-ec", SERVE.replace("adon broker", "exec adon broker")]
    with subprocess.Popen(words, cwd=tmp_path, env=home, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            assert run.stdout.readline().startswith(f"broker: {url} ")
            page = tmp_path / "network.html"
            request = REQUEST.replace("/tmp/network.html", str(page))
            out = typed(request, tmp_path, ADON_BROKER=url)
            assert "try-1" in out and "mu > s1" in out and page.exists()
            assert typed(REFUSED, tmp_path, 2, ADON_BROKER=url) == ""
        finally:
            run.terminate()
            assert run.wait() == 0
    assert [*example.parent.iterdir()] == [example]
    assert (tmp_path / ".local/state/adon/adon-broker.sqlite").is_file()


# --------------------------------------------------------------------------- with a real Pegasus

real = [pytest.mark.pegasus, pytest.mark.long, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Campus:
    """A pool, a Pegasus with ADON in it, and a broker; ``sites`` is the admin's site catalog."""

    user: User
    broker: BrokerClient
    sites: Path

    def typed(self, block: str, cwd: Path, home: Path) -> str:
        """What a block of commands prints at somebody's shell."""
        tools = ensure("bio", progress=lambda _line: None) / "wrap"
        setting = f"export HOME={home} PATH=$PATH:{tools}:{BIN}\n"
        return self.user.types(["sh", "-ec", setting + block], cwd)

    def check_paths(self, submit: Path) -> int:
        """Every path that was given came back; how many transfers there were."""
        lines = [line for line in journal(submit) if line["event"] == "transfer"]
        assert all(line["given_back"] and line["outcome"] == "success" for line in lines), lines
        return len(lines)


@pytest.fixture(scope="module")
def campus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campus]:
    condor = ensure("condor", progress=lambda _line: None)
    slots = {"mu": SiteSpec(workers=2), "tacc": SiteSpec(workers=2), "iplant": SiteSpec(workers=1)}
    home = copy_pegasus(tmp_path_factory.mktemp("opt") / "pegasus")
    folder = tmp_path_factory.mktemp("admin")
    # However small: every transfer is worth a path here.
    any_size = {"qspec": {"min_throughput": "1 Mb/s"}, "rspec": {"max_throughput": "1 Gb/s"},
                "break_even": 0}  # fmt: skip
    config = {
        "topology": star(*SITES),
        "controller": {"driver": "simulated"},
        "templates": {"default": any_size, "soykb": any_size},
    }
    try:
        with (
            broker_process(folder, config) as url,
            Pool(tmp_path_factory.mktemp("pool"), condor, slots) as pool,
        ):
            made = Campus(
                User(pool, home), BrokerClient(url, PATIENT_S), folder / "soykb/sites.yml"
            )
            made.typed(TRY.replace(SOYKB, str(folder / "soykb")), ROOT, folder)
            install = f"adon install pegasus --home {home} --config {folder}/adon.yml --yes"
            assert "verified: ADON answered" in made.typed(install, folder, folder)
            yield made
    finally:
        end_watchers(tmp_path_factory.getbasetemp())


class TestPegasus:
    """All on one pool."""

    pytestmark = real

    def test_two_scientists_have_their_day(self, campus: Campus, tmp_path: Path) -> None:
        ada, ben = (scientist(tmp_path / name, campus.sites) for name in ("ada", "ben"))
        for who in (ada, ben):
            assert campus.typed(LOOK, who, who).count("why: ") == 3
            campus.typed(START, who, who)
        for who in (ada, ben):
            out = campus.typed(FOLLOW, who, who)
            assert re.search(r"(?m)^words of \S+: done, (\d+) of \1 jobs done, 0 failed$", out)
            assert re.search(r"(?m)^from local to \w+ with pegasus-transfer, path ", out)
            assert out.endswith("300000 hamlet.txt\n300000 emily.txt\n")
            assert campus.check_paths(planned(who / "runs")) >= 2
            assert "[archive " in campus.typed(AGAIN, who, who)
        assert campus.broker.health()["live"] == 0

    def test_an_admin_plans_what_was_mapped(self, campus: Campus) -> None:
        folder = campus.sites.parent
        plan = PLAN.replace(BROKER, campus.broker.url)
        out = campus.typed(SEE + plan + RESERVE, folder, folder)
        assert re.search(GIVEN_BACK, out)
        assert (planned(folder / "submit") / "adon-placements.json").is_file()

    @pytest.mark.parametrize("mode", ["sharedfs", "nonsharedfs", "condorio"])
    def test_soykb_runs_as_its_page_says(self, campus: Campus, tmp_path: Path, mode: str) -> None:
        out = tmp_path / "soykb"
        command = MAKE.replace(SOYKB, str(out)).replace("python ", f"{sys.executable} ")
        campus.typed(command, ROOT, tmp_path)
        chosen = out / "pegasus.properties"
        text, count = re.subn("(?m)(configuration.*)sharedfs$", rf"\g<1>{mode}", chosen.read_text())
        assert count == 1
        chosen.write_text(text)
        campus.typed(PLAN_SOYKB.replace(SOYKB, str(out)), tmp_path, tmp_path)
        submit = planned(out / "runs")
        campus.typed(f"adon monitor run {submit}", tmp_path, tmp_path)
        truth, calls = out / "truth/truth.vcf", out / "sites/iplant/storage/All.filtered_snp.vcf.gz"
        check = f"{sys.executable} examples/soykb/check.py --truth {truth} --calls {calls}"
        assert json.loads(campus.typed(check, ROOT, tmp_path))["recall"] >= 0.9
        path_count = campus.check_paths(submit)
        assert path_count > 0 or mode == "condorio"  # there HTCondor moves the files
        assert campus.broker.health()["live"] == 0
