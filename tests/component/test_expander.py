"""The daemon on a real pool without machines of its own: it grows ahead of a DAG's wide level and
shrinks after it; killed at each of its steps, it loses nothing and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import killed_expander
import pytest
import wrong_clock
from startd_world import (
    TALKATIVE,
    adon,
    at_work,
    happened,
    none_left,
    recorded,
    submit_fan,
    write_config,
)
from waiting import until

from examples.testbed.pool import Pool

pytestmark = pytest.mark.component

FLAVOUR = {"cores": 2, "memory_mb": 1024, "price": 0.5, "boot": "6 s", "boot_spread": "15 s"}
SUBMIT = "executable = /bin/sleep\narguments = {}\nlog = {}.log\nrequest_memory = 64\nqueue {}\n"


def configured(pool: Pool, folder: Path, **more: Any) -> Path:
    given = {"flavours": {"small": FLAVOUR}, "every": "1 s", "cores": 8, "jobs_take": "5 s"}
    return write_config(folder, pool, **(given | more))


def submit(pool: Pool, folder: Path, count: int, seconds: int, name: str = "j") -> Path:
    """Its log."""
    (folder / f"{name}.sub").write_text(SUBMIT.format(seconds, name, count))
    pool.run(["condor_submit", "-terse", f"{name}.sub"], cwd=folder)
    return folder / f"{name}.log"


def test_it_grows_for_a_dag_and_shrinks_after_it(pool: Pool, tmp_path: Path) -> None:
    for name, seconds in (("a", 2), ("b", 5), ("z", 1)):
        (tmp_path / f"{name}.sub").write_text(SUBMIT.format(seconds, "dag", 1))
    small = FLAVOUR | {"boot": "3 s", "boot_spread": "5 s"}
    config = configured(
        pool, tmp_path, flavours={"small": small}, jobs_take="3 s", config=TALKATIVE
    )
    with at_work(pool, adon(config, "run"), tmp_path) as daemon:
        submit_fan(pool, tmp_path, 6)
        log = tmp_path / "dag.log"
        until(lambda: happened(log, "005") == 8, "all jobs to end")
        until(lambda: none_left(pool, config), "the machines to be gone")
        assert daemon.poll() is None
    assert happened(log, "004") == 0  # nobody was evicted
    started = sum(
        n for d in recorded(tmp_path, "pool_decision") for n in d.details["start"].values()
    )
    lived = recorded(tmp_path, "machine")
    assert started == len(lived)
    # One that is not needed any more before it has booted is let go.
    assert 1 <= len(recorded(tmp_path, "boot")) <= len(lived)
    assert started >= 2  # the wide level had more than one
    assert {m.details["price"] for m in lived} == {0.5}
    explanation = pool.run(adon(config, "explain"))
    assert "jobs of adon@" in explanation
    assert "would wait for more than" in explanation
    # What it told the collector is taken back.
    assert pool.run(["condor_status", "-af", "Name"]) == ""


@pytest.mark.long
def test_500_wide_and_then_1_wide(pool: Pool, tmp_path: Path) -> None:
    kinds = {"a": "sleep 4", "b": "sleep 3", "z": f"until [ -e {tmp_path}/over ]; do sleep 1; done"}
    for name, does in kinds.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
        sub = f"executable = {name}\nlog = dag.log\nrequest_memory = 16\nqueue\n"
        (tmp_path / f"{name}.sub").write_text(sub)
    config = configured(pool, tmp_path, flavours={"large": FLAVOUR | {"cores": 12}}, cores=48)
    log = tmp_path / "dag.log"

    def there() -> int:
        return len(json.loads(pool.run([*adon(config, "show"), "--json"]))["machines"])

    with at_work(pool, adon(config, "run"), tmp_path):
        submit_fan(pool, tmp_path, 500)
        until(lambda: happened(log, "001") == 502, "all jobs to begin")
        until(lambda: there() == 1, "all machines but the last job's to be gone")
        assert happened(log, "005") == 501
        (tmp_path / "over").touch()
        until(lambda: happened(log, "005") == 502, "the last job to end")
        until(lambda: none_left(pool, config), "the machines to be gone")
    assert happened(log, "001") == happened(log, "005") == 502
    assert happened(log, "004") == happened(log, "009") == 0
    lived = recorded(tmp_path, "machine")
    assert {m.details["why"] for m in lived} == {"it is drained"}
    assert len(lived) == len(recorded(tmp_path, "boot")) >= 4


def test_a_lease_is_a_machine_until_it_is_let_go(pool: Pool, tmp_path: Path) -> None:
    config = configured(pool, tmp_path, cores=4)
    pool.run(adon(config, "enlarge", "night", "--slots", "9", "--lease", "1h"))
    dry = pool.run([*adon(config, "run"), "--once", "--dry-run"])
    assert "start 2 small" in dry
    assert "enough for 2 of" in dry
    with at_work(pool, adon(config, "run"), tmp_path):
        ours = ["condor_status", "-constraint", "AdonWorker isnt undefined", "-af", "TotalSlotCpus"]
        until(lambda: pool.run(ours).split() == ["2", "2"], "two machines")
        pool.run(adon(config, "shrink", "night"))
        until(lambda: none_left(pool, config), "the machines to be gone")


def test_killed_at_each_step_it_leaves_no_orphan_no_double_and_no_lost_job(
    pool: Pool, tmp_path: Path
) -> None:
    config, steps = configured(pool, tmp_path), tmp_path / "steps"
    steps.mkdir()
    killed = [killed_expander.__file__, str(steps), "condor_plugins.pool.cloud.startd:StartdCloud"]
    again = f'while [ ! -e {tmp_path}/over ]; do "$@" & p=$!; wait $p; done'
    again = f"trap 'kill $p; wait $p' TERM; {again}"  # none goes on after the test
    words = [sys.executable, "-I", *killed, *adon(config, "run")[4:]]
    log = submit(pool, tmp_path, 2, 5)
    with at_work(pool, ["sh", "-c", again, "sh", *words], tmp_path):
        until(lambda: happened(log, "005") == 2, "the jobs to end")
        until(lambda: none_left(pool, config), "the machine to be gone")
        until(lambda: len(list(steps.iterdir())) == 10, "it to have been killed ten times")
        (tmp_path / "over").touch()
    assert happened(log, "004") == 0
    assert len(recorded(tmp_path, "machine")) == 1
    assert len(recorded(tmp_path, "boot")) == 1


@pytest.mark.parametrize("ahead_s", [-600, pytest.param(600, marks=pytest.mark.long)])
def test_a_head_node_whose_clock_is_wrong_gives_up_no_machine(
    pool: Pool, tmp_path: Path, ahead_s: int
) -> None:
    config = configured(pool, tmp_path)
    words = [sys.executable, "-I", wrong_clock.__file__, str(ahead_s), *adon(config, "run")[4:]]
    log = submit(pool, tmp_path, 2, 5)
    with at_work(pool, words, tmp_path):
        until(lambda: happened(log, "005") == 2, "the jobs to end")
        until(lambda: none_left(pool, config), "the machine to be gone")
    assert happened(log, "004") == 0
    assert [m.details["why"] for m in recorded(tmp_path, "machine")] == ["it is drained"]
    (boot,) = recorded(tmp_path, "boot")
    assert 0 <= boot.value < 300  # HTCondor tells whole seconds


# Half a minute passes before another machine is started in place of one that was of no use.
IMPATIENT = """
import sys
from adon.cli.main import main
from condor_plugins.pool.cloud import protocol
protocol._LEAST_S = 1.0
sys.exit(main(sys.argv[1:]))
"""
# The first machine that runs a job has no such file as jobs need, all others have.
LACKING = """#!/bin/sh
me=$(sed -n 's/^AdonWorker = "\\(.*\\)"/\\1/p' "$_CONDOR_MACHINE_AD")
echo "$me" > {0}/$$.$me && ln {0}/$$.$me {0}/bad 2> /dev/null
[ "$me" != "$(cat {0}/bad)" ] && sleep 2
"""


def test_a_machine_on_which_jobs_die_is_drained_and_another_started(
    pool: Pool, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "job").write_text(LACKING.format(tmp_path))
    (tmp_path / "job").chmod(0o755)
    (tmp_path / "j.sub").write_text(
        "executable = job\nlog = j.log\nrequest_memory = 64\nmax_retries = 1000\nqueue 6\n"
    )
    # There is room for one machine. Beside another one jobs might be done there before enough of
    # them were seen to die.
    config = configured(pool, tmp_path, cores=2, config=TALKATIVE)
    words = [sys.executable, "-I", "-c", IMPATIENT, *adon(config, "run")[4:]]
    log = tmp_path / "j.log"
    with at_work(pool, words, tmp_path):
        pool.run(["condor_submit", "-terse", "j.sub"], cwd=tmp_path)
        until(lambda: happened(log, "005") == 6, "all jobs to end")
        bad = (tmp_path / "bad").read_text().strip()
        until(lambda: none_left(pool, config), "the machines to be gone")
    explanation = " ".join(pool.run(adon(config, "explain", "--limit", "1000")).split())
    assert f"{bad} drained: the last 4 jobs died there within 60 s" in explanation
    lived = {m.details["name"]: m for m in recorded(tmp_path, "machine")}
    assert bad in lived
    assert len(lived) == 2
    drained = [d for d in recorded(tmp_path, "pool_decision") if "jobs died" in d.details["reason"]]
    assert {name for d in drained for name in d.details["drain"]} == {bad}


@pytest.mark.long
def test_cores_that_no_waiting_job_can_have_are_no_supply(pool: Pool, tmp_path: Path) -> None:
    """A job has nearly all of a machine's disk, and those that wait need some."""
    config = configured(pool, tmp_path, cores=4)
    slots = ["condor_status", "-constraint", "AdonWorker isnt undefined", "-af", "TotalSlotDisk"]
    more = "request_memory = 64\nrequest_disk = {:.0f}\nqueue\n"
    with at_work(pool, adon(config, "run"), tmp_path):
        pool.run(adon(config, "enlarge", "night", "--slots", "2", "--lease", "1h"))
        until(lambda: pool.run(slots).split(), "a machine")
        disk = float(pool.run(slots).split()[0])
        for name, seconds, part in (("a", 3600, 0.9), ("b", 1, 0.3)):
            sub = f"executable = /bin/sleep\narguments = {seconds}\nlog = {name}.log\n"
            (tmp_path / f"{name}.sub").write_text(sub + more.format(part * disk))
            pool.run(["condor_submit", "-terse", f"{name}.sub"], cwd=tmp_path)
            until(lambda name=name: happened(tmp_path / f"{name}.log", "001"), f"{name} to begin")
            pool.run(adon(config, "shrink", "night"))
        assert not happened(tmp_path / "a.log", "005")
        pool.run(["condor_rm", "-all"])
        until(lambda: none_left(pool, config), "the machines to be gone")
    explanation = " ".join(pool.run(adon(config, "explain", "--limit", "100")).split())
    assert "idle cores: 1 that no waiting job can have, on adon-" in explanation
    assert len(recorded(tmp_path, "machine")) == 2


@pytest.mark.long
def test_a_machine_that_idles_and_takes_no_job_is_drained_and_another_started(
    pool: Pool, tmp_path: Path
) -> None:
    """A minute is waited for the negotiator, and half of one before the next of this kind."""
    config = configured(pool, tmp_path, cores=4)
    workers = tmp_path / "adon-workers"
    with at_work(pool, adon(config, "run"), tmp_path):
        pool.run(adon(config, "enlarge", "night", "--slots", "2", "--lease", "1h"))
        slots = ["condor_status", "-constraint", "AdonWorker isnt undefined", "-af", "AdonWorker"]
        until(lambda: pool.run(slots).split(), "a machine")
        (first,) = pool.run(slots).split()
        pool.run(adon(config, "shrink", "night"))
        with (workers / first / "condor_config").open("a") as settings:
            settings.write("START = False\n")
        master = int((workers / first / "process").read_text().split()[0])
        os.kill(master, signal.SIGHUP)
        log = submit(pool, tmp_path, 2, 5)
        until(lambda: happened(log, "005") == 2, "the jobs to end")
        until(lambda: none_left(pool, config), "the machines to be gone")
    explanation = " ".join(pool.run(adon(config, "explain", "--limit", "100")).split())
    assert f"{first} drained: it idles, and takes no job that waits: 2 cores, " in explanation
    assert len(recorded(tmp_path, "machine")) == 2
