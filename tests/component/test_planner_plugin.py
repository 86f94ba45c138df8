"""The planner plug-in on a real JVM: asked by a planner of our own, and by a real pegasus-plan."""

from __future__ import annotations

import json
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from plugin_world import OURS, Outcome, Refused, Scene, SceneJob, fake_plan, real_plan
from waiting import until

from adon.planning.jar import planner_jar
from monitors.workflows.facts.plan import FILE, placement_facts, read_plan
from pegasus_hooks.plugin.build import build_jar
from pegasus_hooks.plugin.request import parse_request

pytestmark = pytest.mark.component

Plan = Callable[[Scene], Outcome]
GB = 10**9


@pytest.fixture(params=["ours", pytest.param("pegasus", marks=pytest.mark.pegasus)])
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Plan:
    """Either planner."""
    return fake_plan if request.param == "ours" else lambda scene: real_plan(scene, tmp_path / "p")


def chain(count: int = 3, **more: object) -> Scene:
    """Jobs in a row, the first of which reads a file at ``tacc``."""
    jobs = [SceneJob("j0", reads={"raw": GB}, writes={"f0": GB})]
    jobs += [
        SceneJob(f"j{i}", reads={f"f{i - 1}": None}, writes={f"f{i}": GB}) for i in range(1, count)
    ]
    return Scene(jobs, replicas={"raw": ("tacc", "http://tacc.example/raw", None)}, **more)  # type: ignore[arg-type]


def script(path: Path, body: str) -> tuple[str, ...]:
    """A command that runs ``body`` in Python, with the request in ``request`` if it reads it."""
    path.write_text(f"import json, os, sys, time\n{body}\n")
    return (sys.executable, "-I", str(path))


def kept(file: Path, tmp_path: Path) -> tuple[str, ...]:
    """A command that keeps the request, all of it, before it says what ends it."""
    body = f"with open({str(file)!r}, 'wb') as kept: kept.write(sys.stdin.buffer.read())\n"
    return script(tmp_path / "keep.py", body + "print('no answer')")


READ = "request = json.load(sys.stdin)\n"
ALL_AT_MU = READ + (
    "for job in request['jobs']: print(job['id'], 'mu', sep='\\t')\n"
    "print('end', len(request['jobs']), 'test', 1.5, sep='\\t', flush=True)\n"
)


def test_adon_maps_data_to_where_it_lies_in_one_call(plan: Plan) -> None:
    outcome = plan(chain(5))
    assert outcome.sites == dict.fromkeys(("j0", "j1", "j2", "j3", "j4"), "tacc")
    assert outcome.warnings == []
    (line,) = outcome.said
    assert line.startswith("ADON: 5 jobs of scene mapped in ")
    assert "(tacc 5), expected to take " in line
    assert "; all at mu: " in line


def test_why_and_what_is_wrong_is_seen_without_v(plan: Plan) -> None:
    hints = {"adon.bandwidth.tac": "1 Gb/s", "adon.workers": "-4"}
    outcome = plan(chain(2, sites={"local": {}, "mu": hints, "tacc": {}}, options=()))
    (line,) = outcome.said
    assert line.startswith("ADON: 2 jobs of scene mapped in ")
    assert "(tacc 2), expected to take " in line
    wrong = "ADON: site 'mu' of the site catalog: adon."
    assert sorted(w.removeprefix(wrong).partition(", expected")[0] for w in outcome.warnings) == [
        "bandwidth.tac names the unknown site 'tac'", "workers: found '-4'",
    ]  # fmt: skip


def test_the_users_own_site_is_kept_and_what_hangs_on_it_follows(plan: Plan) -> None:
    scene = chain(3)
    for job in scene.jobs[1:]:
        job.profiles = {"selector": {"execution.site": "mu"}}
    assert plan(scene).sites == {"j0": "tacc", "j1": "mu", "j2": "mu"}


def test_jobs_start_in_the_order_that_the_mapping_takes_for_granted(plan: Plan) -> None:
    jobs = [SceneJob(name) for name in ("a", "b", "c", "d")]
    jobs[1].profiles = {"condor": {"priority": "3"}}
    jobs[2].profiles = {"pegasus": {"runtime": "600"}}
    jobs[3].profiles = {"dagman": {"PRIORITY": "4"}}
    priorities = plan(Scene(jobs, timeout_s=600.0)).priorities
    assert (priorities["b"], priorities["d"]) == ("3", "4")
    assert int(priorities["c"]) > int(priorities["a"])
    # Properties are of all jobs that have none.
    priorities = plan(Scene(jobs, timeout_s=600.0, properties={"dagman.priority": "50"})).priorities
    assert priorities == {"a": "50", "b": "3", "c": "50", "d": "4"}


def test_jobs_of_a_group_share_a_site_that_can_run_them_all(plan: Plan) -> None:
    programs = {"run": {"mu": "60", "tacc": "60"}, "only": {"mu": "60"}}
    scene = chain(4, programs=programs)
    scene.jobs[0].profiles = {"pegasus": {"group": "g"}}
    scene.jobs[3].profiles = {"pegasus": {"group": "g"}}
    scene.jobs[3].program = "only"
    outcome = plan(scene)
    assert (outcome.sites["j0"], outcome.sites["j3"]) == ("mu", "mu")
    assert outcome.warnings == []


def labelled() -> Scene:
    """Two chains, each one label; each chain's raw file lies elsewhere, and so does its help."""
    jobs, replicas = [], {}
    for label, near, far in (("a", "mu", "tacc"), ("b", "tacc", "mu")):
        profile = {"pegasus": {"label": label}}
        replicas[f"{label}.raw"] = (near, f"http://{near}.example/{label}.raw", GB)
        replicas[f"{label}.help"] = (far, f"http://{far}.example/{label}.help", GB // 3)
        jobs += [
            SceneJob(f"{label}1", reads={f"{label}.raw": GB}, writes={f"{label}.x": 10},
                     profiles=profile),
            SceneJob(f"{label}2", reads={f"{label}.x": None, f"{label}.help": None},
                     writes={f"{label}.y": 10}, profiles=profile),
        ]  # fmt: skip
    return Scene(jobs, replicas=replicas, cluster="label")


def test_what_label_clustering_makes_one_job_of_has_one_site() -> None:
    assert fake_plan(labelled()).sites == {"a1": "mu", "a2": "mu", "b1": "tacc", "b2": "tacc"}
    alone = labelled()
    alone.cluster = None
    assert fake_plan(alone).sites["a2"] in ("mu", "tacc")


@pytest.mark.pegasus
def test_pegasus_clusters_by_label_what_adon_has_mapped(tmp_path: Path) -> None:
    real_plan(labelled(), tmp_path)
    merged = sorted(path.name for path in (tmp_path / "submit").rglob("merge_*.sub"))
    assert len(merged) == 2, merged
    sites = [
        line.split('"')[1]
        for name in merged
        for line in next((tmp_path / "submit").rglob(name)).read_text().splitlines()
        if line.startswith("+pegasus_site")
    ]
    assert sorted(sites) == ["mu", "tacc"]


def with_priorities(*given: str | None) -> Scene:
    """Jobs that may share a horizontal cluster, and one of another program."""
    jobs = [
        SceneJob(f"j{i}", profiles={"pegasus": {"clusters.size": "2"}}
                 | ({"condor": {"priority": own}} if own else {}))
        for i, own in enumerate(given)
    ]  # fmt: skip
    other = {"mu": "60", "tacc": "60"}
    jobs.append(SceneJob("other", program="else"))
    programs = {"run": other, "else": other}
    return Scene(jobs, cluster="horizontal", programs=programs, execution=("mu",))


def test_the_users_priority_of_a_horizontal_cluster_is_not_lost() -> None:
    assert all(fake_plan(with_priorities(None, None)).priorities.values())
    priorities = fake_plan(with_priorities("500", None)).priorities
    assert (priorities["j0"], priorities["j1"]) == ("500", "") and priorities["other"]


@pytest.mark.pegasus
def test_pegasus_gives_a_horizontal_cluster_the_users_priority(tmp_path: Path) -> None:
    real_plan(with_priorities("500", None), tmp_path)
    (cluster,) = (tmp_path / "submit").rglob("merge_*.sub")
    (dag,) = (tmp_path / "submit").rglob("*.dag")
    assert "\npriority = 500\n" in cluster.read_text()
    assert f"PRIORITY {cluster.stem} 500" in dag.read_text().splitlines()


@pytest.mark.pegasus
@pytest.mark.parametrize("cluster", ["horizontal", "label,horizontal", "whole"])
def test_other_clustering_works_too(cluster: str, tmp_path: Path) -> None:
    profile = {"pegasus": {"clusters.size": "2"}}
    scene = Scene([SceneJob(f"j{i}", profiles=profile) for i in range(6)], cluster=cluster)
    assert real_plan(scene, tmp_path).warnings == []
    assert list((tmp_path / "submit").rglob("merge_*.sub"))


def test_a_whole_workflow_that_is_clustered_has_one_site() -> None:
    scene = labelled()
    scene.cluster = "horizontal,whole"
    assert len(set(fake_plan(scene).sites.values())) == 1


def test_sub_workflows_run_at_the_submit_host_and_others_do_not(plan: Plan, tmp_path: Path) -> None:
    inner = tmp_path / "inner.yml"
    inner.write_text("pegasus: '5.0'\n")
    scene = chain(2)
    scene.jobs.append(SceneJob("sub", reads={"inner.yml": 10, "f1": None}, kind="DAXJob"))
    scene.replicas = {**scene.replicas, "inner.yml": ("local", f"file://{inner}", 10)}
    outcome = plan(scene)
    assert {outcome.sites[job] for job in ("j0", "j1")} == {"tacc"}
    assert outcome.sites.get("sub", "local") == "local"
    assert outcome.warnings == []


def test_the_parts_of_a_data_flow_get_its_site() -> None:
    programs = {"run": {"mu": "60", "tacc": "60"}, "only": {"mu": "60"}}
    scene = Scene([SceneJob("flow", kind="DataFlowJob")], programs=programs)
    parts = [
        ("part", f"p{i}", "Job", "t", name, "1.0", "flow") for i, name in ((1, "run"), (2, "only"))
    ]
    outcome = fake_plan(scene, extra=parts)
    assert outcome.sites == {"flow": "mu", "p1": "mu", "p2": "mu"}


def test_a_program_is_looked_up_once_however_many_jobs_run_it(tmp_path: Path) -> None:
    scene = Scene([SceneJob(f"j{i}") for i in range(500)])
    scene.command = script(tmp_path / "answer.py", ALL_AT_MU)
    assert fake_plan(scene).asked == 1


def test_a_job_that_can_run_nowhere_is_left_to_the_planner(plan: Plan, tmp_path: Path) -> None:
    scene = chain(2)
    scene.programs = {"run": {"mu": "60", "tacc": "60"}, "lost": {"elsewhere": "1"}}
    scene.sites = {**scene.sites, "elsewhere": {}}
    scene.jobs[1].program = "lost"
    try:
        outcome = plan(scene)
    except Refused as error:
        assert "could not map job t::lost:1.0" in str(error)
    else:
        assert outcome.sites["j0"] in ("mu", "tacc")
        assert outcome.sites["j1"] == "null"


# --- when ADON has no answer ---------------------------------------------------------------------

FAILURES = {
    "garbage": ("print('<html>')", "it answered '<html>', which is no job and site"),
    "half": (READ + "print('j0\\tmu')", "it ended with exit status 0 after 1 of 4 jobs"),
    "a site of its own": ("print('j0\\tmars')", "it placed job j0 at 'mars', which is none of "),
    "twice": ("print('j0\\tmu\\nj0\\tmu')", "it placed job j0 twice"),
    "wrong count": (ALL_AT_MU.replace("len(request['jobs'])", "3"), "after 4 of 4 jobs"),
    "end too early": ("print('end\\t4\\tx\\t1')", "after 0 of 4 jobs"),
    "an error": (
        READ + "print('adon.yml: no such file', file=sys.stderr); sys.exit(2)",
        "it ended with exit status 2 after 0 of 4 jobs: adon.yml: no such file",
    ),
    "killed": (READ + "os.kill(os.getpid(), 9)", "it ended with exit status 137"),
    "no end of line": ("sys.stdout.write('x' * 10_000_000)", "it answered 'xxxx"),
    "bytes": ("sys.stdout.buffer.write(bytes(range(256)) * 100)", "it answered '"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_without_a_whole_answer_the_built_in_rule_maps_and_says_why(
    failure: str, tmp_path: Path
) -> None:
    body, reason = FAILURES[failure]
    outcome = fake_plan(chain(4, command=script(tmp_path / "answer.py", body)))
    (line,) = outcome.warnings
    assert "by the built-in rule, without ADON: " in line
    assert reason in line
    assert set(outcome.sites.values()) <= {"mu", "tacc"}
    assert len(outcome.sites) == 4


@pytest.mark.pegasus
@pytest.mark.parametrize("failure", ["garbage", "an error"])
def test_pegasus_plans_on_without_adon(failure: str, tmp_path: Path) -> None:
    body, reason = FAILURES[failure]
    outcome = real_plan(chain(4, command=script(tmp_path / "answer.py", body)), tmp_path / "p")
    (line,) = outcome.warnings
    assert reason in line
    assert len(outcome.sites) == 4


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (None, "pegasus.selector.site.adon.command is not set"),
        (["/nowhere/python"], "it cannot be started: "),
        (["/usr"], "it cannot be started: "),
    ],
)
def test_a_command_that_cannot_be_started_is_named(command: list[str] | None, reason: str) -> None:
    (line,) = fake_plan(chain(command=command)).warnings
    assert reason in line


@pytest.mark.parametrize("value", ["0", "soon", "1e9"])
def test_a_limit_that_is_none_is_named(value: str) -> None:
    scene = chain(properties={"pegasus.selector.site.adon.timeout": value})
    (line,) = fake_plan(scene).warnings
    assert f"timeout is '{value}', expected seconds above 0" in line


@pytest.mark.long
def test_a_process_that_is_too_slow_is_ended_with_what_it_started(tmp_path: Path) -> None:
    # It reads nothing, so that the planner's side has more to write than a pipe takes.
    body = (
        "import subprocess\n"
        f"child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)"
    )
    # As long as a busy machine may need to start it.
    outcome = fake_plan(chain(3000, command=script(tmp_path / "slow.py", body), timeout_s=60))
    (line,) = outcome.warnings
    assert "no answer within 60.0 s (pegasus.selector.site.adon.timeout)" in line
    assert len(outcome.sites) == 3000
    pids = (tmp_path / "pids").read_text().split()
    assert pids and all(gone(int(pid)) for pid in pids)


def test_what_was_noted_before_the_answer_is_said_however_long_it_takes_to_read(
    tmp_path: Path,
) -> None:
    note = (
        "print('\\n' * 60_000 + 'by the way', file=sys.stderr, flush=True)\n"  # what a pipe holds
    )
    body = READ + note + ALL_AT_MU.removeprefix(READ)
    outcome = fake_plan(chain(command=script(tmp_path / "answer.py", body)))
    assert any("by the way" in line for line in outcome.infos)
    assert set(outcome.sites.values()) == {"mu"}


def test_a_process_that_lingers_after_its_answer_is_ended(tmp_path: Path) -> None:
    body = f"open({str(tmp_path / 'pids')!r}, 'w').write(str(os.getpid()))\n" + ALL_AT_MU
    outcome = fake_plan(chain(command=script(tmp_path / "a.py", body + "time.sleep(600)")))
    assert outcome.warnings == []
    assert set(outcome.sites.values()) == {"mu"}
    assert gone(int((tmp_path / "pids").read_text()))


def gone(pid: int) -> bool:
    """Whether the process ends; one that nobody has waited for yet has ended, too."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:  # one that was killed may still have to die
        try:
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.long
def test_a_flood_of_notes_is_cut_and_holds_nothing_up(tmp_path: Path) -> None:
    body = "for _ in range(300_000): print('note ' + 'y' * 60, file=sys.stderr)\n" + ALL_AT_MU
    outcome = fake_plan(chain(2000, command=script(tmp_path / "a.py", body)))
    assert outcome.warnings == []
    assert set(outcome.sites.values()) == {"mu"}
    assert 1 <= sum("note yyy" in line for line in outcome.infos) <= 20


def test_an_answer_counts_even_where_the_question_was_not_read(tmp_path: Path) -> None:
    body = (
        "os.close(0)\n"
        "for i in range(3000): print(f'j{i}\\tmu')\n"
        "print('end\\t3000\\ttest\\tnan', flush=True)"
    )
    outcome = fake_plan(chain(3000, command=script(tmp_path / "a.py", body)))
    assert outcome.warnings == []
    assert set(outcome.sites.values()) == {"mu"}


FIRST = READ + (
    "for job in request['jobs']: print(job['id'], 'mu', sep='\\t')\n"
    "print('so far', len(request['jobs']), 'quick', 2.5, sep='\\t', flush=True)\n"
)


@pytest.mark.parametrize(
    ("after", "reason", "limit_s"),
    [
        pytest.param("time.sleep(600)", "no answer within 30.0 s", 30, marks=pytest.mark.long),
        ("print('j0\\ttacc')", "it ended with exit status 0 after 1 of 3 jobs", None),
        ("print('x')", "it answered 'x', which is no job and site", None),
    ],
)
def test_a_first_mapping_counts_where_no_better_one_follows(
    after: str, reason: str, limit_s: float | None, tmp_path: Path
) -> None:
    outcome = fake_plan(chain(command=script(tmp_path / "a.py", FIRST + after), timeout_s=limit_s))
    assert set(outcome.sites.values()) == {"mu"}
    (line,) = outcome.warnings
    assert "expected to take 2.50 s by quick, its first mapping: " in line
    assert reason in line


def test_a_better_mapping_replaces_the_first(tmp_path: Path) -> None:
    body = FIRST + ALL_AT_MU.replace("'mu'", "'tacc'").removeprefix(READ)
    outcome = fake_plan(chain(command=script(tmp_path / "a.py", body)))
    assert (set(outcome.sites.values()), outcome.warnings) == ({"tacc"}, [])


def test_the_built_in_rule_keeps_data_and_company_together() -> None:
    scene = labelled()
    scene.command = None
    assert fake_plan(scene).sites == {"a1": "mu", "a2": "mu", "b1": "tacc", "b2": "tacc"}
    wide = Scene([SceneJob(f"j{i}") for i in range(10)], command=None)
    sites = list(fake_plan(wide).sites.values())
    assert sites.count("mu") == sites.count("tacc") == 5
    hinted = chain(3, command=None)
    hinted.jobs[1].profiles = {"selector": {"execution.site": "mu"}}
    assert fake_plan(hinted).sites["j1"] == "mu"
    assert fake_plan(hinted).sites == fake_plan(hinted).sites


# --- what is asked -------------------------------------------------------------------------------


def test_names_of_any_kind_come_through(tmp_path: Path) -> None:
    names = ["Ünïcödé", "日本語", 'quote"back\\slash', "tick'`$(x)", "😀", "\u0001\u007f", "end"]
    jobs = [SceneJob(name, reads={f"in {name}": 7}, writes={f"out {name}": None}) for name in names]
    sites = {"mu": {"adon.workers": "3"}, "sité é": {}, "local": {}}
    programs = {"run": {"mu": "1.5", "sité é": ""}}
    scene = Scene(jobs, name="wörk", programs=programs, sites=sites, execution=("mu", "sité é"))
    scene.replicas = {f"in {name}": ("mu", f"file:///{name}", None) for name in names}
    scene.command = kept(tmp_path / "request.json", tmp_path)
    fake_plan(scene)
    request = parse_request((tmp_path / "request.json").read_bytes())
    assert {task.id for task in request.tasks} == set(names)
    assert {file.lfn for file in request.files} == {
        f"{w} {n}" for n in names for w in ("in", "out")
    }
    assert request.workflow == "wörk"
    assert request.sites == {"local": {}, "mu": {"adon.workers": "3"}, "sité é": {}}
    (program,) = request.programs
    assert (program.name, program.sites, program.runtimes) == (
        "t::run:1.0", ("mu", "sité é"), {"mu": 1.5}
    )  # fmt: skip
    scene.command = OURS
    assert set(fake_plan(scene).sites) == set(names)


def test_staging_sites_are_asked_about(tmp_path: Path) -> None:
    scene = chain(1)
    scene.command = kept(tmp_path / "request.json", tmp_path)
    fake_plan(scene, extra=[("staging", "tacc", "local")])
    request = parse_request((tmp_path / "request.json").read_text())
    assert request.staging == {"tacc": "local"}


def test_tags_of_sites_are_asked_about(tmp_path: Path) -> None:
    scene = chain(1)
    scene.command = kept(tmp_path / "request.json", tmp_path)
    fake_plan(scene, extra=[("sitetag", "tacc", "fast", "data.configuration", "sharedfs")])
    request = parse_request((tmp_path / "request.json").read_text())
    assert request.tags["tacc"] == {"fast": {"data.configuration": "sharedfs"}}


def test_all_that_decides_is_asked_about(plan: Plan, tmp_path: Path) -> None:
    inner = {"pegasus": {"runtime": "30", "group": "g", "label": "l", "cores": "2"}}
    inner["pegasus"] |= {"data.configuration": "sharedfs", "tag": "fast"}
    jobs = [
        SceneJob("b", reads={"raw": 5}, writes={"mid": 10, "log": None}, profiles=inner),
        SceneJob("a", reads={"mid": None}, writes={"end": 1}, after=["b"],
                 profiles={"pegasus": {"label": "l"}}),
        SceneJob("c", after=["a"], profiles={"selector": {"execution.site": "mu"}}),
    ]  # fmt: skip
    scene = Scene(jobs, replicas={"raw": ("tacc", "http://tacc.example/raw", 5)}, cluster="label")
    scene.kept, scene.bypassed = ["mid"], ["raw"]
    scene.sites = {"local": {}, "mu": {"adon.workers": "7"}, "tacc": {"runtime": "99"}}
    scene.sites["tacc"]["data.configuration"] = "condorio"
    config = tmp_path / "adon.yml"
    scene.properties = {
        "pegasus.selector.site.adon.config": str(config),
        "pegasus.integrity.checking": "none",
    }
    scene.command = kept(tmp_path / "request.json", tmp_path)
    scene.timeout_s = 312.5
    plan(scene)
    raw = json.loads((tmp_path / "request.json").read_text())
    request = parse_request(json.dumps(raw))
    assert (request.config, request.limit_s) == (str(config), 312.5)
    assert (request.output_sites, request.data_configuration) == (("local",), "sharedfs")
    assert request.properties == {"pegasus.integrity.checking": "none"}
    assert all(request.scratch[site].startswith("file://") for site in ("mu", "tacc"))
    assert request.sites["mu"]["adon.workers"] == "7"
    assert request.sites["tacc"] == {"runtime": "99", "data.configuration": "condorio"}
    files = {file.lfn: file for file in request.files}
    assert {n: (f.size_bytes, f.wanted) for n, f in files.items()} == {
        "raw": (5, False), "mid": (10, False), "log": (None, True), "end": (1, True)
    }  # fmt: skip
    assert [name for name, file in files.items() if file.bypass] == ["raw"]
    a, b, c = request.tasks
    assert [task.id for task in (a, b, c)] == ["a", "b", "c"]
    assert (b.runtime_s, b.group, b.cluster, b.cores) == (30.0, "g", "l", 2)
    assert (a.profiles, b.profiles) == (
        {}, {"pegasus.data.configuration": "sharedfs", "pegasus.tag": "fast"}
    )  # fmt: skip
    assert (a.after, b.after, c.after) == ((1,), (), (0,))
    assert [request.files[f].lfn for f in a.reads] == ["mid"]
    assert (a.fixed, c.fixed, a.sites, c.sites) == (False, True, ("mu", "tacc"), ("mu",))
    assert dict(request.programs[a.program].runtimes) == {"mu": 60.0, "tacc": 60.0}


def test_what_earlier_sub_workflows_left_comes_before_what_was_inherited(tmp_path: Path) -> None:
    scene = chain()
    scene.replica_files = [("replicas", "/c.yml"), ("inherited", "/b.txt"), ("cache", "/a.cache")]
    scene.command = kept(tmp_path / "request.json", tmp_path)
    fake_plan(scene)
    request = parse_request((tmp_path / "request.json").read_text())
    assert [path for _, path in request.replica_files] == ["/a.cache", "/b.txt", "/c.yml"]


# --- the jar -------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    def build(name: str) -> bytes:
        return build_jar(tmp_path / name / "x.jar", progress=lambda _: None).read_bytes()

    assert build("a") == build("b")


def test_the_jar_is_for_java_8_and_holds_nothing_of_pegasus() -> None:
    with zipfile.ZipFile(planner_jar(progress=print)) as jar:
        names = jar.namelist()
        versions = {jar.read(n)[6:8] for n in names if n.endswith(".class")}
    assert versions == {(52).to_bytes(2, "big")}
    assert all(name.startswith(("org/adon/pegasus/", "META-INF/MANIFEST.MF")) for name in names)


@pytest.mark.pegasus
def test_why_each_job_is_where_it_is_stands_in_the_submit_directory(tmp_path: Path) -> None:
    outcome = real_plan(chain(3), tmp_path / "p")
    (run,) = (path.parent for path in (tmp_path / "p/submit").rglob("braindump.yml"))
    until((run / FILE).exists, "what nobody who plans waits for")
    facts = placement_facts(read_plan(run), "w")
    assert {fact.details["job"]: fact.subject for fact in facts} == outcome.sites
    assert all(fact.details["reason"] and fact.value > 0 for fact in facts)
    assert {alternative["site"] for alternative in facts[0].details["alternatives"]} == {
        "mu",
        "tacc",
    }
