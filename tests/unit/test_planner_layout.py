"""The executable workflow: every file is there before it is read, brought once, removed last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from generated import shared_fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_world import FIXED, MAPPING, Case, by_gridftp, job, make_case, uses

from monitors.workflows.planned.transferlist import Mkdir, Remove, Transfer
from network_provisioner.base.errors import InputError
from pegasus_hooks.planner.layout import lay_out
from pegasus_hooks.planner.model import ExecutableJob, Options, PlannedKind
from pegasus_hooks.planner.programs import ExecutableCatalog
from pegasus_hooks.planner.staging import RunPaths


def planned(
    case: Case,
    mapping: Mapping[str, str] = MAPPING,
    output: str = "store",
    options: Options = FIXED,
) -> dict[str, ExecutableJob]:
    inputs = case.inputs()
    programs = ExecutableCatalog(inputs.sites, inputs.transformations)
    places = RunPaths(inputs.sites, "u/pegasus/mini/run0001")
    return lay_out(inputs, programs, mapping, places, output, options)


def moves(job: ExecutableJob) -> list[tuple[str, str, str]]:
    return [
        (e.lfn, e.source.site, e.destination.site) for e in job.entries if isinstance(e, Transfer)
    ]


def test_the_jobs_of_a_small_workflow(case: Case) -> None:
    jobs = planned(case)
    assert {name: sorted(job.parents) for name, job in jobs.items()} == {
        "create_dir_mini_0_mu": [],
        "create_dir_mini_0_tacc": [],
        "stage_in_local_mu_0_0": ["create_dir_mini_0_mu"],
        "split_ID1": ["stage_in_local_mu_0_0"],
        "stage_inter_local_shout_ID2_0": ["create_dir_mini_0_tacc", "split_ID1"],
        "shout_ID2": ["split_ID1", "stage_inter_local_shout_ID2_0"],
        "count_ID3": ["split_ID1"],
        "stage_inter_local_join_ID4_0": ["count_ID3", "create_dir_mini_0_tacc"],
        "join_ID4": ["count_ID3", "shout_ID2", "stage_inter_local_join_ID4_0"],
        "stage_out_local_mu_1_0": ["count_ID3"],
        "stage_out_local_tacc_2_0": ["join_ID4"],
        "cleanup_mini_0_mu": [
            "stage_inter_local_join_ID4_0",
            "stage_inter_local_shout_ID2_0",
            "stage_out_local_mu_1_0",
        ],
        "cleanup_mini_0_tacc": ["stage_out_local_tacc_2_0"],
    }
    assert moves(jobs["stage_in_local_mu_0_0"]) == [("raw.txt", "store", "mu")]
    assert moves(jobs["stage_inter_local_join_ID4_0"]) == [("n.txt", "mu", "tacc")]
    assert moves(jobs["stage_out_local_tacc_2_0"]) == [("result.txt", "tacc", "store")]
    assert jobs["stage_in_local_mu_0_0"].site == "local"
    assert jobs["split_ID1"].site == jobs["create_dir_mini_0_mu"].site == "mu"


@pytest.mark.parametrize(("jobs", "stage_jobs"), [(3, 1), (11, 2)])
def test_one_stage_job_for_ten_jobs_of_a_level(case: Case, jobs: int, stage_jobs: int) -> None:
    names = [f"raw{number}.txt" for number in range(jobs)]
    entries = [
        job(number, "count", [], uses({name: 19}, {f"n{number}.txt": True}))
        for number, name in enumerate(names)
    ]
    case.change("workflow", lambda d: d.update(jobs=entries, jobDependencies=[]))
    case.change("replicas", lambda d: d["replicas"].extend(
        {"lfn": name, "pfns": [{"site": "store", "pfn": by_gridftp("store", f"/{name}")}]}
        for name in names
    ))  # fmt: skip
    planned_jobs = planned(case, {f"ID{number}": "mu" for number in range(jobs)})
    kinds = [job.kind for job in planned_jobs.values()]
    assert kinds.count(PlannedKind.STAGE_IN) == kinds.count(PlannedKind.STAGE_OUT) == stage_jobs


def test_urls_go_through_each_sites_file_server(case: Case) -> None:
    (entry,) = planned(case)["stage_in_local_mu_0_0"].entries
    assert isinstance(entry, Transfer)
    assert entry.source.url == by_gridftp("store", f"{case.storage('store')}/raw.txt")
    run = f"{case.scratch('mu')}/u/pegasus/mini/run0001"
    assert entry.destination.url == by_gridftp("mu", f"{run}/raw.txt")
    assert entry.size_bytes == 19
    task = planned(case)["split_ID1"].task
    assert task is not None and task.directory == run


def test_a_replica_at_the_jobs_own_site_is_linked_there(case: Case) -> None:
    case.change("replicas", lambda d: d["replicas"][0]["pfns"].append(
        {"site": "mu", "pfn": by_gridftp("mu", f"{case.storage('mu')}/copy.txt")}
    ))  # fmt: skip
    jobs = planned(case)
    link = jobs["stage_in_remote_mu_0_0"]
    (entry,) = link.entries
    assert isinstance(entry, Transfer)
    assert link.site == "mu"
    assert entry.source.url == f"file://{case.storage('mu')}/copy.txt"
    assert entry.destination.url.startswith(f"symlink://{case.scratch('mu')}/u/pegasus")
    assert "stage_in_local_mu_0_0" not in jobs


def test_further_replicas_are_tried_after_the_first(case: Case) -> None:
    case.change("replicas", lambda d: d["replicas"][0]["pfns"].append(
        {"site": "web", "pfn": "https://web.example/raw.txt"}
    ))  # fmt: skip
    (entry,) = planned(case)["stage_in_local_mu_0_0"].entries
    assert isinstance(entry, Transfer)
    assert [(s.site, s.priority) for s in entry.sources] == [("store", 100), ("web", 90)]


def test_a_path_at_another_site_becomes_a_url_of_its_server(case: Case) -> None:
    def place_at(path: str) -> None:
        case.change("replicas", lambda d: d["replicas"][0]["pfns"][0].update(pfn=path))

    place_at(str(case.storage("store") / "raw.txt"))
    (entry,) = planned(case)["stage_in_local_mu_0_0"].entries
    assert isinstance(entry, Transfer)
    assert entry.source.url == by_gridftp("store", f"{case.storage('store')}/raw.txt")
    place_at("/elsewhere/raw.txt")
    with pytest.raises(InputError, match="expected a URL, or a path below a directory"):
        planned(case)
    place_at(url := "http://[2001:db8::1/raw.txt")  # pegasus-transfer says what is wrong with it
    (entry,) = planned(case)["stage_in_local_mu_0_0"].entries
    assert isinstance(entry, Transfer) and entry.source.url == url


def test_results_that_stay_where_they_are_made_are_copied_there(case: Case) -> None:
    out = planned(case, output="tacc")["stage_out_remote_tacc_2_0"]
    (entry,) = out.entries
    assert isinstance(entry, Transfer)
    assert (out.site, entry.source.site, entry.destination.site) == ("tacc",) * 3
    assert entry.destination.url == f"file://{case.storage('tacc')}/result.txt"


def test_everything_at_one_site_moves_nothing_in_between(case: Case) -> None:
    jobs = planned(case, dict.fromkeys(MAPPING, "tacc"))
    assert not [job for job in jobs.values() if job.kind is PlannedKind.STAGE_INTER]


def test_a_staged_program_is_brought_and_named_as_pegasus_names_it(case: Case) -> None:
    def only_at_local(data: Any) -> None:
        entry = next(t for t in data["transformations"] if t["name"] == "join")
        entry["sites"] = [{"name": "local", "pfn": "/opt/join", "type": "stageable"}]

    case.change("transformations", only_at_local)
    jobs = planned(case)
    (entry,) = jobs["stage_in_local_tacc_2_0"].entries
    assert isinstance(entry, Transfer)
    assert (entry.lfn, entry.source.url) == ("t-join-1.0", "file:///opt/join")
    task = jobs["join_ID4"].task
    assert task is not None and (task.executable, task.staged_executable) == ("t-join-1.0", True)
    assert "stage_in_local_tacc_2_0" in jobs["join_ID4"].parents


def test_profiles_of_job_site_and_transformation_add_up_the_last_wins_as_in_pegasus(
    case: Case,
) -> None:
    case.change("transformations", lambda d: d["transformations"][0].update(
        profiles={"env": {"A": "tc", "WHERE": "tc"}, "pegasus": {"memory": "100"}}
    ))  # fmt: skip
    case.change(
        "workflow", lambda d: d["jobs"][0].update(profiles={"env": {"A": "job", "B": "job"}})
    )
    profiles = planned(case)["split_ID1"].profiles
    assert profiles["env"] == {"WHERE": "tc", "A": "tc", "B": "job"}
    assert profiles["condor"]["requirements"] == 'PegasusSite == "mu"'
    assert profiles["pegasus"]["memory"] == "100"


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"ID9": "mu"}, "found job 'ID9'"),
        (MAPPING | {"ID1": "store"}, "job ID1: site mapping says 'store', expected one of mu"),
        ({"ID1": "mu"}, "job ID2: the site mapping gives it no site"),
    ],
)
def test_a_mapping_that_does_not_fit(case: Case, mapping: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as caught:
        planned(case, mapping)
    assert words in str(caught.value)


def test_a_site_without_directory_or_server(case: Case) -> None:
    def edit(change: Any) -> None:
        case.change("sites", lambda d: change(next(s for s in d["sites"] if s["name"] == "tacc")))

    edit(lambda site: site["directories"][0].update(fileServers=[]))
    with pytest.raises(
        InputError, match="fileServers: found a list, expected a list of at least 1"
    ):
        planned(case)
    edit(lambda site: site.update(directories=[]))
    with pytest.raises(InputError, match="'tacc': found no directory of type sharedScratch"):
        planned(case)


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A random DAG over a few files, and a random place for every job."""
    count = draw(st.integers(1, 7))
    jobs, mapping = [], {}
    for number in range(1, count + 1):
        reads: dict[str, int | None] = {}
        for other in range(1, number):
            if draw(st.booleans()):
                reads[f"f{other}"] = None
        if not reads or draw(st.booleans()):
            reads["raw.txt"] = 19
        writes = {f"f{number}": draw(st.booleans())}
        name = draw(st.sampled_from(["split", "shout", "count", "join"]))
        jobs.append(job(number, name, [], uses(reads, writes)))
        mapping[f"ID{number}"] = draw(st.sampled_from(["mu", "tacc", "local"]))
    return jobs, mapping


def ancestors(jobs: Mapping[str, ExecutableJob]) -> dict[str, set[str]]:
    """Of each job; the jobs come parents first, or this fails."""
    above: dict[str, set[str]] = {}
    for name, planned_job in jobs.items():
        above[name] = set(planned_job.parents).union(*(above[p] for p in planned_job.parents))
    return above


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = make_case(tmp_path_factory.mktemp("flows") / "case")
    (case.root / "pegasus.properties").write_text("pegasus.data.reuse.scope = none\n")
    return case


@given(flows(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["store", "mu", "local"]))
@settings(shared_fixtures, max_examples=25)
def test_any_workflow_finds_its_files(
    shared: Case,
    flow: tuple[list[dict[str, Any]], dict[str, str]],
    in_clusters: int,
    out_clusters: int,
    output: str,
) -> None:
    entries, mapping = flow
    document = {"pegasus": "5.0.4", "name": "mini", "jobs": entries, "jobDependencies": []}
    shared.sources.workflow.write_text(yaml.safe_dump(yaml.safe_load(yaml.safe_dump(document))))
    options = Options(stage_in_clusters=in_clusters, stage_out_clusters=out_clusters)
    jobs = planned(shared, mapping, output, options)
    above = ancestors(jobs)
    arrivals: dict[tuple[str, str], list[str]] = {}  # (site, file) to the jobs that put it there
    for name, planned_job in jobs.items():
        if planned_job.task is not None:
            for lfn in planned_job.task.outputs:
                arrivals.setdefault((planned_job.site, lfn), []).append(name)
        elif planned_job.kind is not PlannedKind.STAGE_OUT:
            for entry in planned_job.entries:
                if isinstance(entry, Transfer):
                    arrivals.setdefault((entry.destination.site, entry.lfn), []).append(name)
    assert all(len(names) == 1 for names in arrivals.values())  # brought or made once

    def there_before(name: str, site: str, lfn: str) -> bool:
        return arrivals[site, lfn][0] in above[name]

    staged_out = set()
    for name, planned_job in jobs.items():
        if planned_job.task is not None:
            assert planned_job.site == mapping[planned_job.task.id]
            assert all(there_before(name, planned_job.site, lfn) for lfn in planned_job.task.inputs)
            assert f"create_dir_mini_0_{planned_job.site}" in above[name]
        for entry in planned_job.entries:
            if isinstance(entry, Transfer) and planned_job.kind is PlannedKind.STAGE_INTER:
                assert there_before(name, entry.source.site, entry.lfn)
                assert entry.source.site != entry.destination.site
            elif isinstance(entry, Transfer) and planned_job.kind is PlannedKind.STAGE_OUT:
                assert there_before(name, entry.source.site, entry.lfn)
                assert entry.destination.site == output
                staged_out.add(entry.lfn)
            elif isinstance(entry, Remove):
                touching = {n for n, j in jobs.items() if entry.target.site in j.touches}
                assert touching <= above[name]
        assert sum(isinstance(e, Mkdir) for e in planned_job.entries) <= 1
    wanted = {u["lfn"] for e in entries for u in e["uses"] if u.get("stageOut")}
    assert staged_out == wanted


def test_results_that_are_there_are_copied(case: Case) -> None:
    kept = {"lfn": "result.txt", "pfns": [{"site": "local", "pfn": "/data/kept"}]}
    case.change("replicas", lambda d: d["replicas"].append(kept))
    left = case.inputs().workflow.jobs
    assert "ID4" not in left
    jobs = planned(case, {job: site for job, site in MAPPING.items() if job in left})
    (copy,) = jobs["stage_out_local_local_1000_0"].entries
    assert isinstance(copy, Transfer)
    assert (copy.source.url, copy.destination.site) == ("file:///data/kept", "store")
