"""What the pool decides without HTCondor: its configuration, its user, whose processes are its."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.testbed import dagman
from examples.testbed.dagman import parse_cluster, submit_command, submit_dag
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import (
    FamilyPlace,
    SiteSpec,
    check_sites,
    hub_config,
    quoted,
    site_config,
)
from examples.testbed.pooluser import user_table
from examples.testbed.procs import MARK, end_marked, marked
from network_provisioner.base.errors import AdonError, InputError

PLACE = FamilyPlace(Path("/rel"), Path("/pool/mu"), Path("/pool/secrets"), "adon")


def settings(text: str) -> dict[str, str]:
    return {k.strip(): v.strip() for k, _, v in (ln.partition("=") for ln in text.splitlines())}


@pytest.mark.parametrize("name", ["hub", "users", "Mu", "", "../x", "1st", "a b"])
def test_a_site_that_htcondor_cannot_carry_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="site name: found"):
        check_sites({name: SiteSpec(1)})


def test_a_site_needs_a_worker() -> None:
    with pytest.raises(InputError, match="site mu: found 0 workers, expected at least 1"):
        check_sites({"mu": SiteSpec(0)})


@given(st.integers(1, 500), st.sampled_from(["10.254.1.2", "127.0.0.1"]))
def test_a_site_has_as_many_slots_as_workers(workers: int, address: str) -> None:
    spec = SiteSpec(workers, address=address, attributes={"Rack": "r1"})
    config = settings(site_config(PLACE, "mu", spec, "10.254.0.1:9618", ""))
    assert config["NUM_SLOTS_TYPE_1"] == config["NUM_CPUS"] == str(workers)
    assert config["COLLECTOR_HOST"] == "10.254.0.1:9618"
    assert config["CONDOR_HOST"] == "10.254.0.1"
    assert config["NETWORK_INTERFACE"] == address
    assert config["PegasusSite"] == '"mu"'
    assert config["STARTD_ATTRS"].split() == ["$(STARTD_ATTRS)", "PegasusSite", "Rack"]


def test_only_the_pools_own_user_may_write_or_join() -> None:
    config = settings(hub_config(PLACE, "127.0.0.1", 0))
    allowed = {k: v for k, v in config.items() if k.startswith("ALLOW_") and k != "ALLOW_READ"}
    assert {"ALLOW_WRITE", "ALLOW_DAEMON", "ALLOW_ADVERTISE_STARTD"} <= set(allowed)
    assert set(allowed.values()) == {"adon@adon.test"}
    assert config["SEC_DEFAULT_AUTHENTICATION"] == "REQUIRED"


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", codec="utf-8"))))
def test_quoted_words_can_be_read_back(words: list[str]) -> None:
    inner = quoted(words)[1:-1].replace('""', '"')
    result, rest = [], inner
    while rest:
        word, rest = "", rest.removeprefix(" ")[1:]
        while True:
            part, _, rest = rest.partition("'")
            word += part
            if not rest.startswith("'"):
                break
            word, rest = word + "'", rest[1:]
        result.append(word)
    assert result == words


users = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)


@given(st.lists(st.tuples(users, st.integers(0, 2000))))
def test_the_pools_user_takes_its_name_and_number_and_nobody_elses(
    rows: list[tuple[str, int]],
) -> None:
    text = "".join(f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in rows)
    after = user_table(text, "adon", 1000, "1000::/home:/bin/sh").splitlines()
    assert after[-1] == "adon:x:1000:1000::/home:/bin/sh"
    kept = [(ln.split(":")[0], int(ln.split(":")[2])) for ln in after[:-1]]
    assert kept == [row for row in rows if row[0] != "adon" and row[1] != 1000]


def test_marked_processes_are_found_and_ended_and_others_spared(tmp_path: Path) -> None:
    def sleeper(directory: Path) -> subprocess.Popen[bytes]:
        env = {**os.environ, MARK: str(directory)}
        started = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"]
        child = subprocess.Popen(started, env=env, stdout=subprocess.PIPE)
        assert child.stdout
        child.stdout.readline()
        return child

    children = [sleeper(tmp_path / "a"), sleeper(tmp_path / "a/pool"), sleeper(tmp_path / "ab")]
    try:
        assert {p.pid for p in marked(tmp_path / "a")} == {c.pid for c in children[:2]}
        end_marked(tmp_path / "a")
        assert marked(tmp_path / "a") == []
        assert children[2].poll() is None
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_clients_get_the_pools_configuration_and_no_foreign_overrides(tmp_path: Path) -> None:
    pool = Pool(tmp_path, Path("/condor"), {"mu": SiteSpec(1)})
    env = pool.env({"PATH": "/usr/bin", "_CONDOR_COLLECTOR_HOST": "elsewhere", "X": "1"})
    assert env["CONDOR_CONFIG"] == str(tmp_path / "hub/condor_config")
    assert env["PATH"] == "/condor/wrap:/usr/bin"
    assert env["X"] == "1"
    assert "_CONDOR_COLLECTOR_HOST" not in env
    assert pool.env(env) == env


def test_scripts_of_a_dag_get_adons_and_the_named_variables() -> None:
    command = submit_command("x.dag", ["PEGASUS_HOME", "LAB_*"])
    assert command[0] == "condor_submit_dag"
    assert command[-1] == "x.dag"
    assert command[command.index("-include_env") + 1] == "ADON_*,PEGASUS_HOME,LAB_*"


@pytest.mark.parametrize("name", ["A,B", "A B", "", "1A", "A=1"])
def test_what_is_no_variable_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="environment of a DAG"):
        submit_command("x.dag", [name])


@given(st.integers(1, 10**9))
def test_the_cluster_is_read_from_the_submission(cluster: int) -> None:
    assert parse_cluster(f"Renaming rescue DAGs\n{cluster}.0 - {cluster}.0\n") == cluster


def test_a_submission_without_a_job_is_an_error() -> None:
    with pytest.raises(AdonError, match="expected a job id"):
        parse_cluster("nothing")


def test_a_missing_dag_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.dag: found no such file"):
        submit_dag(tmp_path / "none.dag", lambda *_a, **_k: "1.0")


def test_a_value_that_htcondor_would_drop_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.dag").touch()
    with pytest.raises(InputError, match=r"LAB: found 'a;b', expected no ;"):
        submit_dag(tmp_path / "x.dag", lambda *_a, **_k: "1.0", env={"LAB": "a;b"})


def test_force_drops_what_would_make_dagman_recover_an_old_run(tmp_path: Path) -> None:
    dag = tmp_path / "x.dag"
    for name in ("x.dag", "x.dag.lock", "x.dag.dagman.log", "x.dag.nodes.log"):
        (tmp_path / name).touch()
    assert submit_dag(dag, lambda *_a, **_k: "7.0 - 7.0", force=True) == 7
    assert [p.name for p in tmp_path.iterdir()] == ["x.dag"]
    assert dagman.DagLog(dag, 7).poll() is None


LOG = """\
000 (003.000.000) 2026-11-21 08:37:24.158 Job submitted from host: <127.0.0.1:1>
...
005 (003.000.000) 2026-11-21 08:37:26.264 Job terminated.
\t(1) Normal termination (return value {code})
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage
\t0  -  Run Bytes Sent By Job
\t0  -  Run Bytes Received By Job
\t0  -  Total Bytes Sent By Job
\t0  -  Total Bytes Received By Job
...
"""


@pytest.mark.parametrize(("code", "state"), [(0, "success"), (1, "failed")])
def test_the_end_of_a_dag_is_read_from_its_log(tmp_path: Path, code: int, state: str) -> None:
    (tmp_path / "x.dag.dagman.log").write_text(LOG.format(code=code))
    end = dagman.DagLog(tmp_path / "x.dag", 3).poll()
    assert end == dagman.DagEnd(state, code)
    assert dagman.DagLog(tmp_path / "x.dag", 4).poll() is None
