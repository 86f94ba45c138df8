"""What a job moves, in every shape in which Pegasus plans it, and what PRE asks for then."""

from __future__ import annotations

from pathlib import Path

import pytest
from hooks_world import FakeBroker, journal
from planned_world import PARENT, WORKFLOW, File, Planned, gsiftp
from pytest import MonkeyPatch

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.moves import Moves
from network_provisioner.base.model import TransitState
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks import pre
from pegasus_hooks.prepost import postjob, prejob

CONFIG = HookConfig("http://127.0.0.1:1")
Asked = list[tuple[str, str, int | None]]


def asks(plan: Planned, job: str, broker: FakeBroker | None = None) -> Asked:
    """The pairs and sizes that PRE of ``job`` asks for; and its quick look is of the same mind."""
    broker = broker or FakeBroker()
    before = len(broker.asked)
    assert prejob.run(PlannedFiles(plan.where, job), 0, CONFIG, Effects(broker, Budget(60.0))) == 0
    requests = [(r.src, r.dst, r.size_bytes) for r in broker.asked[before:]]
    with MonkeyPatch.context() as patch:
        patch.chdir(plan.where)
        assert not requests or "stage_" in job or pre.moves_its_own(job)
    return requests


def moves(plan: Planned, job: str) -> Moves | None:
    return prejob.moves_at(PlannedFiles(plan.where, job))


def test_a_shared_file_system_is_reached_by_transfer_jobs(plan: Planned) -> None:
    plan.transfer_job(
        "stage_in_local_mu_0_0",
        [
            File("f.x", "archive", gsiftp("archive", "f.x"), "mu", gsiftp("mu", "r/f.x"), 3000),
            File("f.a", "local", "file:///in/f.a", "mu", gsiftp("mu", "r/f.a"), 1000),
        ],
    )
    plan.transfer_job(
        "stage_inter_local_count_ID2_0",
        [File("b1", "mu", gsiftp("mu", "r/b1"), "tacc", gsiftp("tacc", "r/b1"), None, "output")],
    )
    assert asks(plan, "stage_in_local_mu_0_0") == [("archive", "mu", 3000), ("local", "mu", 1000)]
    plan.wrote("b1", 42)
    assert asks(plan, "stage_inter_local_count_ID2_0") == [("mu", "tacc", 42)]


def test_where_a_checksum_is_missing_the_bytes_pass_where_the_job_runs(plan: Planned) -> None:
    file = File(
        "f.x", "archive", gsiftp("archive", "f.x"), "mu", gsiftp("mu", "r/f.x"), 9, checksum=True
    )
    plan.transfer_job("stage_in_local_mu_0_0", [file])
    plan.transfer_job("stage_in_remote_mu_0_0", [file], "mu", "vanilla")
    assert asks(plan, "stage_in_local_mu_0_0") == [("archive", "local", 9), ("local", "mu", 9)]
    assert asks(plan, "stage_in_remote_mu_0_0") == [("archive", "mu", 9)]


def test_a_link_within_a_site_needs_no_circuit(plan: Planned) -> None:
    link = File("g", "mu", "file:///lustre/mu/data/g", "mu", "symlink:///lustre/mu/r/g", 184320)
    plan.transfer_job("stage_in_remote_mu_4_0", [link], "mu", "vanilla")
    assert asks(plan, "stage_in_remote_mu_4_0") == []
    assert journal(plan.where) == []


def lite(plan: Planned, job: str = "split_ID1") -> None:
    plan.lite_job(
        job,
        "mu",
        [File("f.a", "stage", gsiftp("stage", "r/f.a"), "mu", "file://$PWD/f.a")],
        [
            File("b1", "mu", "file://$PWD/b1", "stage", gsiftp("stage", "r/b1"), None, "output"),
            File("b2", "mu", "file://$PWD/b2", "stage", gsiftp("stage", "r/b2"), None, "output"),
        ],
    )
    plan.input_sizes(job, {"f.a": 1000, "f.x": 3000})


def test_a_node_with_its_own_disk_fetches_from_the_staging_site_itself(plan: Planned) -> None:
    lite(plan)
    broker = FakeBroker()
    assert asks(plan, "split_ID1", broker) == [("stage", "mu", 1000)]
    # Its outputs leave hours later: on record, but with nothing kept for them meanwhile.
    (notice,) = broker.told
    assert (notice.src, notice.dst, notice.size_bytes) == ("mu", "stage", None)
    assert "no path is kept that long" in notice.best_effort
    states = [(x["src"], x["state"], x["files"]) for x in journal(plan.where)]
    assert states == [("stage", "installed", 1), ("mu", "best_effort", 2)]
    # No transfer job of Pegasus's: its submit file is left alone, and so is its folder.
    assert not (plan.folder / "split_ID1.multipart").exists()


RECORDS = """- transfer_attempts:
  - src_url: "gsiftp://dtn.stage.example.edu:2811/stage/r/f.a"
    src_label: "stage"
    dst_url: "file:///scratch/1/f.a"
    dst_label: "mu"
    success: True
    start: 1000
    duration: 2.0
    lfn: "f.a"
    bytes: 1000
  - src_url: "file:///scratch/1/b1"
    src_label: "mu"
    dst_url: "gsiftp://dtn.stage.example.edu:2811/stage/r/b1"
    dst_label: "stage"
    success: True
    start: 1100
    duration: 1.0
    lfn: "b1"
    bytes: 77
"""


def test_what_a_node_moved_itself_is_reported(plan: Planned) -> None:
    lite(plan)
    broker = FakeBroker()
    asks(plan, "split_ID1", broker)
    (plan.folder / "split_ID1.out").write_text(RECORDS)
    effects = Effects(broker, Budget(60.0), now=lambda: 0.0)
    postjob.run(PlannedFiles(plan.where, "split_ID1"), 0, 0, CONFIG, effects)
    assert [r[1:] for r in broker.released] == [(1000, 2.0, "success"), (77, 1.0, "success")]
    decision = job_files.read_json(plan.folder / "split_ID1.adon.json")
    assert decision["given_back"] is True


def at_local(url: str) -> str:
    """What Pegasus 5.1.2 wrote of a job whose staging site is ``local``, with other URLs there."""
    folder = "file:///home/ada/plain/local/scratch/adon/pegasus/mini/run0001/00/00"
    file_with = (Path(__file__).parent / "lite_local" / "split_ID1").with_suffix
    return "".join(file_with(end).read_text().replace(folder, url) for end in (".sh", ".out"))


@pytest.mark.parametrize("url", ["file:///staging", "gsiftp://dtn.example.edu:2811/staging"])
def test_a_staging_site_may_be_local(plan: Planned, url: str) -> None:
    """Its URL is in the list, and that of what pegasus-transfer calls ``local`` is not."""
    script, record, tail = at_local(url).partition("- invocation: True\n")
    plan.job("split_ID1", "t::split:1.0", "mu", "vanilla")
    (plan.folder / "split_ID1.sh").write_text(script)
    broker = FakeBroker()
    assert asks(plan, "split_ID1", broker) == [("local", "mu", None)]
    tail = tail.replace("duration: 0.0", "duration: 2.0")
    (plan.folder / "split_ID1.out").write_text(record + tail)
    effects = Effects(broker, Budget(60.0), now=lambda: 0.0)
    postjob.run(PlannedFiles(plan.where, "split_ID1"), 0, 0, CONFIG, effects)
    assert [r[1:] for r in broker.released] == [(19, 2.0, "success"), (19, 2.0, "success")]


def test_what_passes_a_machine_that_the_tool_calls_local(plan: Planned) -> None:
    """Between two servers that no tool speaks to both of, for a job at ``mu``."""
    ends = ("s3://ada@store/f", gsiftp("tacc", "f"))
    plan.transfer_job(
        "stage_in_remote_mu_0_0", [File("f", "store", ends[0], "tacc", ends[1])], "mu"
    )
    job, broker = "stage_in_remote_mu_0_0", FakeBroker()
    assert [pair[:2] for pair in asks(plan, job, broker)] == [("store", "mu"), ("mu", "tacc")]
    steps = (
        (("store", ends[0]), ("local", "file:///tmp/t1")),
        (("local", "file:///tmp/t1"), ("tacc", ends[1])),
    )
    (plan.folder / f"{job}.out").write_text("- transfer_attempts:\n" + "".join(
        f'  - src_url: "{src[1]}"\n    src_label: "{src[0]}"\n    dst_url: "{dst[1]}"\n'
        f'    dst_label: "{dst[0]}"\n    success: True\n    start: 1000\n    duration: 2.0\n'
        '    lfn: "f"\n    bytes: 7\n' for src, dst in steps
    ))  # fmt: skip
    postjob.run(
        PlannedFiles(plan.where, job), 0, 0, CONFIG, Effects(broker, Budget(60.0), now=lambda: 0.0)
    )
    assert [r[1:] for r in broker.released] == [(7, 2.0, "success")] * 2


def test_an_input_that_bypasses_the_staging_site_comes_from_where_it_lies(plan: Planned) -> None:
    """Pegasus gives it the label of the site that it goes to."""
    url = gsiftp("archive", "f.x")
    plan.cached("f.x", url, "archive")
    plan.cached("f.x", url + ".not", "elsewhere")
    plan.lite_job(
        "split_ID1",
        "mu",
        [
            File("f.x", "mu", url, "mu", "file://$PWD/f.x"),
            File("f.a", "stage", gsiftp("stage", "r/f.a"), "mu", "file://$PWD/f.a"),
        ],
        [],
    )
    plan.input_sizes("split_ID1", {"f.x": 3000})
    broker = FakeBroker()
    assert asks(plan, "split_ID1", broker) == [("archive", "mu", 3000), ("stage", "mu", None)]
    records = RECORDS.replace("gsiftp://dtn.stage.example.edu:2811/stage/r/f.a", url).replace(
        'src_label: "stage"', 'src_label: "mu"', 1
    )
    (plan.folder / "split_ID1.out").write_text(records)
    effects = Effects(broker, Budget(60.0), now=lambda: 0.0)
    postjob.run(PlannedFiles(plan.where, "split_ID1"), 0, 0, CONFIG, effects)
    assert [r[1] for r in broker.released] == [1000, 0]


def test_an_input_of_the_jobs_own_site_needs_no_circuit(plan: Planned) -> None:
    plan.lite_job(
        "split_ID1", "mu", [File("f.x", "mu", gsiftp("mu", "f.x"), "mu", "file://$PWD/f.x")], []
    )
    assert asks(plan, "split_ID1") == []


def test_what_htcondor_carries_itself_is_not_asked_for_here(plan: Planned) -> None:
    """condorio: the script moves nothing, and what brings files to the submit host is a job whose
    name says ``remote``."""
    plan.lite_job("count_ID2", "tacc", [], [])
    assert asks(plan, "count_ID2") == []
    plan.transfer_job(
        "stage_in_remote_local_0_0",
        [File("f.x", "archive", gsiftp("archive", "f.x"), "local", "file:///s/f.x", 3000)],
    )
    plan.transfer_job(
        "stage_in_local_local_0_0",
        [File("f.a", "local", "file:///in/f.a", "local", "file:///s/f.a", 1000)],
    )
    assert asks(plan, "stage_in_remote_local_0_0") == [("archive", "local", 3000)]
    assert asks(plan, "stage_in_local_local_0_0") == []


IMAGE = """pegasus-transfer --threads 1  1>&2 << 'EOF'
[
 { "type": "transfer",
   "linkage": "input",
   "lfn": "cont.sif",
   "id": 1,
   "src_urls": [
     { "site_label": "archive", "url": "https://images.example.edu/cont.sif" }
   ],
   "dest_urls": [
     { "site_label": "mu", "url": "file://$PWD/cont.sif", "type": "singularity" }
   ] }
]
EOF

"""


def test_the_image_of_a_container_is_fetched_too(plan: Planned) -> None:
    lite(plan)
    script = plan.folder / "split_ID1.sh"
    script.write_text(script.read_text().replace("set -e\n", "set -e\n" + IMAGE, 1))
    plan.wrote("cont.sif", 900)
    assert asks(plan, "split_ID1") == [("archive", "mu", 900), ("stage", "mu", 1000)]


CLUSTER = "#@ 1 t::count:1.0 ID2 \n/opt/pegasus/bin/pegasus-kickstart  -n t::count:1.0 ./count x\n"


@pytest.mark.parametrize("job", ["merge_t-count-1_0_PID2_ID1", "merge_stage_reads_PID2_ID1"])
def test_the_input_of_a_clustered_job_is_no_transfer_list(plan: Planned, job: str) -> None:
    plan.job(job, "pegasus::seqexec", "tacc", "vanilla")
    (plan.folder / f"{job}.in").write_text(CLUSTER)
    assert asks(plan, job) == []


def test_a_clustered_job_on_its_own_disk_fetches_for_all_its_tasks(plan: Planned) -> None:
    tool = File("count", "stage", gsiftp("stage", "r/count"), "tacc", "file://$PWD/count")
    other = File("b1", "stage", gsiftp("stage", "r/b1"), "tacc", "file://$PWD/b1")
    job = "merge_t-count-1_0_PID2_ID1"
    plan.lite_job(job, "tacc", [tool, tool, other], [])
    (plan.folder / f"{job}.in").write_text(CLUSTER)
    plan.wrote("b1", 5)
    plan.wrote("count", 7)
    assert asks(plan, job) == [("stage", "tacc", 7 + 7 + 5)]


def test_results_that_go_to_several_sites_are_asked_for_one_by_one(plan: Planned) -> None:
    here = gsiftp("mu", "r/out.d")
    plan.transfer_job(
        "stage_out_local_mu_2_0",
        [
            File("out.d", "mu", here, "archive", gsiftp("archive", "out.d"), None, "output"),
            File("out.d", "mu", here, "local", "file:///results/out.d", None, "output"),
        ],
    )
    plan.wrote("out.d", 500)
    assert asks(plan, "stage_out_local_mu_2_0") == [("mu", "archive", 500), ("mu", "local", 500)]


def test_data_that_are_there_already_come_from_where_they_are(plan: Planned) -> None:
    """Reuse: the job that made c2 is not run again; others read it, and it is a result."""
    there = gsiftp("archive", "c2")
    plan.transfer_job(
        "stage_in_local_mu_1_0",
        [File("c2", "archive", there, "mu", gsiftp("mu", "r/c2"), 4242)],
    )
    plan.transfer_job(
        "stage_out_local_local_1000_0",
        [File("c2", "archive", there, "local", "file:///results/c2", None, "output")],
    )
    assert asks(plan, "stage_in_local_mu_1_0") == [("archive", "mu", 4242)]
    assert asks(plan, "stage_out_local_local_1000_0") == [("archive", "local", None)]


def test_a_workflow_within_a_workflow_asks_for_itself(tmp_path: Path) -> None:
    outer = Planned(tmp_path / "run", PARENT)
    outer.job("pegasus-plan_SUB1", "condor::dagman", "local", "scheduler")
    inner = Planned(outer.folder / "mini_SUB1", WORKFLOW, root=PARENT)
    inner.transfer_job(
        "stage_in_local_mu_0_0",
        [File("top", "tacc", gsiftp("tacc", "r/top"), "mu", gsiftp("mu", "r/top"))],
    )
    outer.wrote("top", 31)
    assert asks(outer, "pegasus-plan_SUB1") == []
    broker = FakeBroker()
    assert asks(inner, "stage_in_local_mu_0_0", broker) == [("tacc", "mu", 31)]
    assert (broker.asked[0].workflow, broker.asked[0].id.partition(":")[0]) == (WORKFLOW,) * 2


def test_a_job_that_only_looks_like_a_transfer_is_none(plan: Planned) -> None:
    plan.job("stage_light_ID7", "t::stage_light:1.0", "mu", "vanilla")
    (plan.folder / "stage_light_ID7.in").write_text("what the job reads\n")
    assert moves(plan, "stage_light_ID7") is None
    assert asks(plan, "stage_light_ID7") == []


def test_without_a_submit_file_the_name_says_it(plan: Planned) -> None:
    job = "stage_in_local_mu_0_0"
    plan.transfer_job(job, [File("f", "a", gsiftp("a", "f"), "mu", gsiftp("mu", "f"), 8)]).unlink()
    assert asks(plan, job) == [("a", "mu", 8)]


def test_a_verified_output_that_comes_back_shares_the_request_of_what_comes_first(
    plan: Planned,
) -> None:
    """Should a site pair stand in both lists of a script, one id is for both."""
    both = File("b", "stage", gsiftp("stage", "b"), "mu", "file://$PWD/b", 3)
    out = File("c", "stage", gsiftp("stage", "c"), "mu", "file://$PWD/c", 4, "output")
    plan.lite_job("odd_ID1", "mu", [both], [out])
    job_moves = moves(plan, "odd_ID1")
    assert job_moves is not None and job_moves.later == []
    assert asks(plan, "odd_ID1") == [("stage", "mu", 7)]


def test_what_a_killed_pre_may_have_got_for_a_node_is_given_back_by_the_next(
    plan: Planned,
) -> None:
    lite(plan)
    broker = FakeBroker()
    asks(plan, "split_ID1", broker)
    prejob.run(PlannedFiles(plan.where, "split_ID1"), 1, CONFIG, Effects(broker, Budget(60.0)))
    ids = {f"{WORKFLOW}:split_ID1:0:{pair}" for pair in ("stage-mu", "mu-stage")}
    assert {r[0] for r in broker.released} == ids
    assert TransitState.BEST_EFFORT in {x["state"] for x in journal(plan.where)}
