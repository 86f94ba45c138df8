"""What the DAGs in the queue will ask of the pool, look by look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import classad2
import pytest
from monitor_files import START, aborted, append, event, executing, submitted, terminated

from condor_plugins.jobs.sites import Ad
from condor_plugins.pool.dags import OVERDUE_S, FollowedDag, FollowedDags
from condor_plugins.pool.expander.demand import Demands
from condor_plugins.pool.expander.observation import View
from condor_plugins.pool.expander.supply import PoolSupply
from condor_plugins.pool.queue import Matching
from condor_plugins.pool.run_times import RunTimes
from monitors.workflows.planned.forecast import LAG_S, forecast

DAGMAN = 7
IDLE, RUNNING, COMMON = 1, 2, 9
REMOVED, HELD = 3, 5
RUN_S = 100.0
SUB = """\
executable = work.sh
requirements = PegasusSite == "mu"
request_cpus = 2
request_memory = 1 GB
+pegasus_site = "mu"
+pegasus_wf_xformation = "t::{kind}:1.0"
+pegasus_wf_dag_job_id = "{name}"
{more}
queue
"""
WIDE = ("b1", "b2", "b3")


class World:
    """A DAG ``a -> b1 b2 b3 -> c`` in a directory of Pegasus's shape, and the queue around it."""

    def __init__(self, path: Path, workflow: str = "wf-1") -> None:
        self.path, self.dagman = path, self.ad(10, Iwd=str(path), Arguments="-f -Dag wf.dag")
        path.mkdir()
        (path / "braindump.yml").write_text(f'wf_uuid: "{workflow}"\ndag: "wf.dag"\n')
        self.names = ["a", *WIDE, "c"]
        for name in self.names:
            self.submit_file(name)
        edges = "PARENT a CHILD b1 b2 b3\nPARENT b1 b2 b3 CHILD c\n"
        self.dag("".join(f"JOB {name} {name}.sub\n" for name in self.names) + edges)
        self.follow = FollowedDags(RunTimes(None, RUN_S))

    def dag(self, text: str) -> None:
        append(self.path / "wf.dag", text)

    def submit_file(self, name: str, more: str = "") -> None:
        text = SUB.format(kind=name[0], name=name, more=more)
        (self.path / f"{name}.sub").write_text(text)

    def log(self, *events: str) -> None:
        append(self.path / "wf.dag.nodes.log", "".join(events))

    def ad(self, cluster: int, status: int = RUNNING, at: float = 0.0, **more: Any) -> Ad:
        own: dict[str, Any] = {"JobUniverse": DAGMAN} if "Iwd" in more else {"DAGManJobId": 10}
        since = {"JobCurrentStartDate": int(START + at)} if status != IDLE else {}
        return {
            "ScheddName": "ap", "User": "ada@x", "ClusterId": cluster, "JobUniverse": 5,
            "JobStatus": status, "QDate": int(START + at), **own, **since, **more,
        }  # fmt: skip

    def observe(self, at: float, *jobs: Ad) -> FollowedDag:
        (dag,) = self.follow.observe([self.dagman, *jobs], START + at)
        return dag


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "run")


def coming(dag: FollowedDag, at: float) -> dict[str, float]:
    """When each job asks for a worker, in seconds from the beginning."""
    jobs = forecast([dag.state], [], 30.0, START + at, START + 1e6)
    return {job.name: round(job.ready_at - START) for job in jobs}


def later(dag: FollowedDag, at: float) -> set[str]:
    """Those that are not in the queue yet."""
    return set(coming(dag, at)) - set(dag.state.queued)


def test_a_dag_from_planned_to_done(world: World) -> None:
    planned = world.observe(0)
    assert (planned.schedd, planned.cluster, planned.user, planned.workflow) == (
        "ap",
        10,
        "ada@x",
        "wf-1",
    )
    assert set(coming(planned, 0)) == {"a", *WIDE, "c"}
    assert coming(planned, 0)["a"] == LAG_S
    assert planned.state.cores == dict.fromkeys(world.names, 2)

    world.log(submitted(11, START + 5, "a"))
    queued = world.observe(6, world.ad(11, IDLE, 5, DAGNodeName="a"))
    assert queued.state.queued == {"a": START + 5}
    assert later(queued, 6) == {*WIDE, "c"}

    world.log(executing(11, START + 10))
    runs = world.observe(20, world.ad(11, RUNNING, 10, DAGNodeName="a"))
    assert set(runs.state.running) == {"a"}
    first = coming(runs, 20)
    assert first["b1"] == first["b3"] == pytest.approx(10 + RUN_S, rel=0.1)
    assert later(runs, 20) == {*WIDE, "c"}

    world.log(terminated(11, START + 50))
    world.log(*(submitted(n, START + 55, name) for n, name in enumerate(WIDE, 12)))
    world.log(*(executing(n, START + 60) for n in (12, 13)))
    level = [
        world.ad(12, RUNNING, 60, DAGNodeName="b1"),
        world.ad(13, COMMON, 60, DAGNodeName="b2"),
        world.ad(14, IDLE, 55, DAGNodeName="b3"),
    ]
    wide = world.observe(70, *level)
    assert wide.state.done == {"a"}
    assert set(wide.state.running) == {"b1", "b2"}
    assert set(wide.state.queued) == {"b3"}
    assert later(wide, 70) == {"c"}

    world.log(executing(14, START + 80), *(terminated(n, START + 90) for n in (12, 13, 14)))
    world.log(submitted(15, START + 95, "c"), executing(15, START + 96))
    last = world.observe(97, world.ad(15, RUNNING, 96, DAGNodeName="c"))
    assert last.state.done == {"a", *WIDE}
    assert coming(last, 97) == {}
    world.log(terminated(15, START + 120))
    assert world.observe(121).state.done == set(world.names)
    assert world.follow.observe([], START + 130) == []


def test_what_its_own_jobs_took_is_believed_more_and_more(world: World) -> None:
    assert world.observe(0).state.run_s["b3"] == RUN_S
    world.log(*(submitted(n, START, name) for n, name in enumerate(WIDE, 12)))
    world.log(executing(12, START + 1), terminated(12, START + 21))
    assert world.observe(22).state.run_s["b3"] == (3 * RUN_S + 20) / 4
    runs = world.observe(1000, world.ad(13, RUNNING, 22, DAGNodeName="b2"))
    assert runs.state.run_s["b3"] > 200


@pytest.mark.parametrize("which", ["a", "ALL_NODES"])
def test_a_job_that_fails_is_tried_again_as_often_as_the_dag_says(world: World, which: str) -> None:
    world.dag(f"RETRY {which} 1\n")
    world.log(submitted(11, START, "a"), executing(11, START + 1), terminated(11, START + 2, 1))
    again = world.observe(3)
    assert later(again, 3) == {"a", *WIDE, "c"}
    world.log(submitted(12, START + 5, "a"), aborted(12, START + 6))
    over = world.observe(8)
    assert over.state.never == {"a"}
    assert coming(over, 8) == {}


def test_a_job_is_not_tried_again_after_the_exit_code_that_the_dag_names(world: World) -> None:
    world.dag("RETRY a 3 UNLESS-EXIT 4\n")
    world.log(submitted(11, START, "a"), executing(11, START + 1), terminated(11, START + 2, 1))
    assert later(world.observe(3), 3) == {"a", *WIDE, "c"}
    world.log(submitted(12, START + 5, "a"), executing(12, START + 6), terminated(12, START + 7, 4))
    assert world.observe(8).state.never == {"a"}


def test_a_post_script_has_the_last_word(world: World) -> None:
    world.log(submitted(11, START, "a"), executing(11, START + 1), terminated(11, START + 2))
    assert world.observe(3).state.done == {"a"}
    text = "(1) Normal termination (return value 1)"
    world.log(event(16, 11, START + 4, "POST Script terminated.", text, "DAG Node: a"))
    failed = world.observe(5)
    assert (failed.state.done, failed.state.never) == (set(), {"a"})


@pytest.mark.parametrize("status", [HELD, REMOVED])
def test_nothing_comes_after_a_job_that_is_held_or_removed(world: World, status: int) -> None:
    world.log(submitted(11, START, "a"))
    held = world.observe(5, world.ad(11, status, DAGNodeName="a"))
    assert held.state.never == {"a"}
    assert coming(held, 5) == {}
    runs = world.observe(9, world.ad(11, RUNNING, 8, DAGNodeName="a"))
    assert later(runs, 9) == {*WIDE, "c"}


def test_the_log_is_newer_than_the_queue(world: World) -> None:
    world.log(submitted(11, START, "a"), executing(11, START + 1), terminated(11, START + 20))
    world.log(submitted(12, START + 21, "b1"))
    dag = world.observe(22, world.ad(11, RUNNING, 1, DAGNodeName="a"))
    assert dag.state.done == {"a"}
    assert set(dag.state.queued) == {"b1"}
    # One that is long gone from the queue does not wait, whatever the log says.
    assert world.observe(200).state.never == {"b1"}


@pytest.mark.parametrize(("refusal", "queued"), [("", 1), ("submitter limit exceeded", 0)])
def test_a_job_of_a_dag_that_no_machine_would_help_asks_for_none(
    world: World, refusal: str, queued: int
) -> None:
    world.log(submitted(11, START, "a"))
    refused = {"LastRejMatchReason": refusal, "LastRejMatchTime": 2} if refusal else {}
    job = world.ad(11, IDLE, DAGNodeName="a", **refused)
    supplied = PoolSupply((), {}, {}, frozenset(), {})
    dags = [world.observe(5, job)]
    view = View(
        START + 5, [world.dagman, job], dags, [], Matching({}), supplied, [], {}, {}, {}, {}, {}
    )
    demands = Demands(lambda ad: classad2.ClassAd(dict(ad)), lambda _: RUN_S)
    assert demands.at(view, []).counts["queued"] == queued


def test_what_dagman_could_have_submitted_long_ago_is_not_counted_on(world: World) -> None:
    world.log(submitted(11, START, "a"), executing(11, START + 1), terminated(11, START + 20))
    assert later(world.observe(20 + OVERDUE_S), 30) == {*WIDE, "c"}
    assert world.observe(21 + OVERDUE_S).state.never == set(WIDE)
    back = world.observe(2000, world.ad(12, RUNNING, 1990, DAGNodeName="b1"))
    assert back.state.never == {"b2", "b3"}


def test_a_rescue_and_marks_in_the_dag_say_what_is_done(world: World) -> None:
    (world.path / "wf.dag.rescue001").write_text("# Rescue DAG\nDONE a\nDONE b1\n")
    (world.path / "wf.dag.rescue002.old").write_text("DONE c\n")
    world.submit_file("d")
    world.submit_file("z")
    world.dag("JOB d d.sub DONE\nFINAL z z.sub\nINCLUDE more.dag\n")
    world.submit_file("n")
    (world.path / "more.dag").write_text("SERVICE s z.sub\nJOB n n.sub NOOP\nJOB e d.sub\nDONE e\n")
    # Another DAGMan's.
    world.log(submitted(3, START - 99, "b2"), terminated(3, START - 90))
    dag = world.observe(0)
    assert dag.state.done == {"a", "b1", "d", "e"}
    assert set(coming(dag, 0)) == {"b2", "b3", "c"}


def test_brackets_in_a_name_are_no_pattern(world: World) -> None:
    (world.path / "wf.dag").rename(world.path / "wf[1].dag")
    (world.path / "braindump.yml").write_text('wf_uuid: "wf-1"\ndag: "wf[1].dag"\n')
    (world.path / "wf[1].dag.rescue001").write_text("DONE a\n")
    world.dagman = world.ad(10, Iwd=str(world.path), Arguments="-f -Dag wf[1].dag")
    assert world.observe(0).state.done == {"a"}


@pytest.mark.parametrize(
    ("cpus", "counted"),
    [("1000000000000", 10**12), ("undefined", 1), ('real("INF")', 1), ("-3", 1)],
)
def test_a_job_may_ask_for_any_number_of_cores(world: World, cpus: str, counted: int) -> None:
    world.submit_file("a", f"request_cpus = {cpus}")
    dag = world.observe(0)
    assert dag.state.cores.get("a", 1) == counted
    assert set(coming(dag, 0)) == {"a", *WIDE, "c"}


def test_jobs_of_the_submit_host_take_no_worker(world: World) -> None:
    world.submit_file("b2", "universe = local")
    dag = world.observe(0)
    assert set(coming(dag, 0)) == {"a", "b1", "b3", "c"}
    assert set(dag.requests) == {"a", "b1", "b3", "c"}


def test_a_request_matches_as_a_job_of_the_queue_does(world: World) -> None:
    world.submit_file("b2", "request_disk = 2 MB\nrequest_gpus = 1\nrequest_memory = $(much)\n")
    dag = world.observe(0)
    ask = dag.request("b1")
    assert ask is dag.request("b3")
    assert (ask["RequestCpus"], ask["RequestMemory"], ask["User"]) == (2, 1024, "ada@x")
    assert ask["pegasus_site"] == "mu"
    slot = classad2.ClassAd()
    slot.update({"PegasusSite": "mu", "Cpus": 2, "Memory": 1024, "Disk": 2048})
    slot["Requirements"] = classad2.ExprTree('TARGET.Owner == "ada"')
    assert ask.symmetricMatch(slot)
    assert not dag.request("b2").symmetricMatch(slot)
    slot["GPUs"] = 1
    assert dag.request("b2")["RequestDisk"] == 2048
    assert dag.request("b2").symmetricMatch(slot)
    slot["Memory"] = 1000
    assert not ask.symmetricMatch(slot)
    slot.update({"Memory": 1024, "PegasusSite": "tacc"})
    assert not ask.symmetricMatch(slot)


def test_a_plain_dag_of_jobs_alike(world: World) -> None:
    (world.path / "braindump.yml").unlink()
    (world.path / "nap.sub").write_text("executable = /bin/sleep\nqueue\n")
    world.dag('JOB n1 nap.sub\nJOB n2 nap.sub\nVARS n2 request_cpus="4" +much="7"\n')
    world.log(submitted(11, START, "n1"), executing(11, START + 1), terminated(11, START + 21))
    dag = world.observe(30)
    assert dag.workflow == ""
    assert (dag.state.run_s["n2"], dag.state.cores["n2"]) == ((3 * RUN_S + 20) / 4, 4)
    assert (dag.request("n2")["much"], dag.request("n2")["Cmd"]) == (7, "/bin/sleep")


def test_a_sub_workflow_is_a_dag_of_its_own_and_its_end_is_the_jobs(tmp_path: Path) -> None:
    outer = World(tmp_path / "outer")
    inner = World(outer.path / "inner", "wf-2")
    dagman = "universe = scheduler\ninitialdir = inner\narguments = -Dag wf.dag\n"
    outer.submit_file("a", f"{dagman}+pegasus_job_class = 10\n")
    outer.log(submitted(20, START, "a"), executing(20, START + 1))
    runs = outer.ad(
        20, RUNNING, 1, Iwd=str(inner.path), Arguments="-Dag wf.dag", JobUniverse=DAGMAN,
        DAGManJobId=10, DAGNodeName="a",
    )  # fmt: skip
    whole, part = outer.follow.observe([outer.dagman, runs], START + 10)
    assert (whole.workflow, part.workflow) == ("wf-1", "wf-2")
    assert set(coming(part, 10)) == {"a", *WIDE, "c"}
    assert coming(whole, 10)["b1"] == 10 + 3 * (LAG_S + RUN_S) + LAG_S
    # One that is held brings nothing, and nor does what waits for it.
    (alone,) = outer.follow.observe([outer.dagman, {**runs, "JobStatus": HELD}], START + 20)
    assert coming(alone, 20) == {}
    # Nobody knows how long one takes that cannot be read, or is not planned yet.
    (inner.path / "wf.dag").unlink()
    (alone,) = FollowedDags(RunTimes(None, RUN_S)).observe([outer.dagman, runs], START + 20)
    assert coming(alone, 20)["b1"] > 50


def test_a_directory_that_cannot_be_read_is_left_out_and_told_once(world: World) -> None:
    gone = world.ad(30, Iwd=str(world.path / "gone"), Arguments="-Dag wf.dag")
    other = {**world.dagman, "ClusterId": 31, "Arguments": "sleep 5"}
    queue = [world.dagman, gone, other]
    assert [dag.cluster for dag in world.follow.observe(queue, START)] == [10]
    (line,) = world.follow.take_warnings()
    assert line.startswith("DAG 30 of ap is not followed: ")
    for at in (15, 1000):
        assert len(world.follow.observe(queue, START + at)) == 1
    assert world.follow.take_warnings() == []
    (world.path / "gone").symlink_to(world.path)
    assert len(world.follow.observe(queue, START + 1010)) == 1
    assert len(world.follow.observe(queue, START + 1300)) == 2
