"""Snakemake's scheduler ``adon`` in a real Snakemake, with ADON's mapper in this Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[2] / "packaging/snakemake"
SNAKEMAKE = shutil.which("snakemake")
pytestmark = [
    pytest.mark.component,
    pytest.mark.skipif(SNAKEMAKE is None, reason="needs Snakemake 9.27 or later on PATH"),
]
# Jobs begin when the mapper has answered. The chain is short: with priorities it is first all the
# same, because the last job waits for it longest.
FLOW = """
rule all:
    input: "end"
rule start:
    output: "start"
    shell: "until grep -q ADON: log; do sleep 0.1; done; touch start"
rule short:
    input: "start"
    output: "s{n}"
    resources: runtime=1
    shell: "echo s{wildcards.n} >> order; touch {output}"
rule chain:
    input: "start"
    output: "c1"
    resources: runtime=20
    shell: "echo c1 >> order; touch {output}"
rule chained:
    input: "c1"
    output: "c2"
    resources: runtime=20
    shell: "echo c2 >> order; touch {output}"
rule join:
    input: "c2", expand("s{n}", n=range(6))
    output: "end"
    shell: "echo join >> order; touch {output}"
"""
SUITE = """
from snakemake_interface_scheduler_plugins.tests import TestSchedulerBase
from snakemake_scheduler_plugin_adon import Scheduler
class Suite(TestSchedulerBase):
    def get_scheduler_cls(self): return Scheduler
    def get_scheduler_settings(self): return None
Suite().test_scheduler()
"""
ENV = os.environ | {"PYTHONPATH": str(PLUGIN), "PYTHONDONTWRITEBYTECODE": "1"}


def run(folder: Path, *words: str, python: str = sys.executable) -> tuple[list[str], str]:
    """The jobs in the order in which they ran, and what Snakemake said."""
    (folder / "Snakefile").write_text(FLOW)
    command = [str(SNAKEMAKE), "--cores", "1", "--scheduler", "adon", "--scheduler-adon-python",
               python, *words]  # fmt: skip
    with (folder / "log").open("wb") as log:
        subprocess.run(command, cwd=folder, env=ENV, stdout=log, stderr=log, check=True)
    return (folder / "order").read_text().split(), (folder / "log").read_text()


def test_the_longest_way_to_the_end_goes_first(tmp_path: Path) -> None:
    order, log = run(tmp_path, "--scheduler-adon-sites", "mu")
    assert order[:2] == ["c1", "c2"]
    assert order[-1] == "join" and len(order) == 9
    assert "requirements" not in log  # there is one site


def test_jobs_get_the_requirements_of_their_sites(tmp_path: Path) -> None:
    _, log = run(tmp_path, "--scheduler-adon-sites", "mu,tacc")
    assert 'requirements=(TARGET.AdonSite == "' in log


def test_without_adon_the_greedy_scheduler_decides(tmp_path: Path) -> None:
    order, log = run(tmp_path, "--scheduler-adon-sites", "mu", python="/bin/false")
    assert "the greedy scheduler decides" in log
    assert order[-1] == "join"


def test_snakemakes_own_tests_of_schedulers_pass() -> None:
    python = Path(str(SNAKEMAKE)).with_name("python")
    subprocess.run([python, "-c", SUITE], env=ENV, check=True)
