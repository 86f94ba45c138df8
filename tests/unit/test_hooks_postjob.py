"""After a job: everything is given back, with bytes and seconds, and the sizes are kept."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from broker_model import BrokerModel, Killed
from hooks_world import WF_UUID, FakeBroker, journal, make_submit_dir, move
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitState
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost import hookrun, keepsizes, postjob, prejob

JOB = "stage_inter_local_sort_ID2_0"
IDS = [f"{WF_UUID}:{JOB}:0:a-b", f"{WF_UUID}:{JOB}:0:c-b"]
CONFIG = HookConfig("http://127.0.0.1:1")
RECORD = """- transfer_attempts:
  - src_url: "gsiftp://a/f"
    src_label: "a"
    dst_url: "gsiftp://b/f"
    dst_label: "b"
    success: True
    start: 1000
    duration: 2.0
    lfn: "f"
"""


@pytest.fixture
def submit_dir(tmp_path: Path) -> Path:
    lists = {JOB: [move("f", "a", "b"), move("g", "c", "b", 8)]}
    return make_submit_dir(tmp_path / "run", lists, ["sort_ID2"])


def effects(broker: FakeBroker) -> Effects:
    return Effects(broker, Budget(60.0), now=lambda: 0.0)


def before(submit_dir: Path, broker: FakeBroker) -> None:
    prejob.run(PlannedFiles(submit_dir, JOB), 0, CONFIG, effects(broker))


def after(submit_dir: Path, broker: FakeBroker, code: int = 0) -> list[dict[str, object]]:
    postjob.run(PlannedFiles(submit_dir, JOB), 0, code, CONFIG, effects(broker))
    return [line for line in journal(submit_dir) if line["hook"] == "post"]


def record(submit_dir: Path, text: str = RECORD) -> None:
    folder = submit_dir / "00/00" / f"{JOB}.multipart"
    folder.mkdir(exist_ok=True)
    (folder / "1000-transfer").write_text(text)


def test_every_transit_is_given_back_with_what_it_moved(submit_dir: Path) -> None:
    broker = FakeBroker()
    before(submit_dir, broker)
    record(submit_dir)
    job_files.append_lines(submit_dir / job_files.SIZE_JOURNAL, [{"lfn": "f", "bytes": 500}])
    lines = after(submit_dir, broker)
    assert broker.released == [(IDS[0], 500, 2.0, "success"), (IDS[1], 0, 0.0, "success")]
    assert lines[0]["goodput_bps"] == 2000.0
    assert lines[1]["bytes_source"] == "unknown"  # its transfer left no record
    decision = job_files.read_json(submit_dir / "00/00" / f"{JOB}.adon.json")
    assert decision["given_back"] is True


def test_a_failed_transfer_gives_back_too(submit_dir: Path) -> None:
    broker = FakeBroker()
    before(submit_dir, broker)
    after(submit_dir, broker, code=3)
    assert [r[3] for r in broker.released] == ["exit 3", "exit 3"]


def test_without_a_decision_the_same_ids_are_given_back(submit_dir: Path) -> None:
    broker = FakeBroker()
    after(submit_dir, broker)
    assert [r[0] for r in broker.released] == IDS


def test_the_decision_of_the_try_before_says_nothing_of_this_one(submit_dir: Path) -> None:
    """As where this try's PRE was killed."""
    broker = FakeBroker()
    before(submit_dir, broker)
    file = submit_dir / "00/00" / f"{JOB}.adon.json"
    job_files.write_json(file, {**job_files.read_json(file), "tuned": {"threads": 7}})
    postjob.run(PlannedFiles(submit_dir, JOB), 1, 0, CONFIG, effects(broker))
    assert [r[0] for r in broker.released] == [name.replace(":0:", ":1:") for name in IDS]
    assert {used["threads"] for used in broker.used} == {0}
    assert job_files.read_json(file)["given_back"] is False  # it is for the next hook
    after(submit_dir, broker)
    assert broker.used[-1]["threads"] == 7


@pytest.mark.parametrize(("written", "files"), [(1999.0, 1), (1000.0, 0)])
def test_records_of_the_try_before_say_nothing_of_this_one(
    submit_dir: Path, written: float, files: int
) -> None:
    broker = FakeBroker()
    record(submit_dir)
    os.utime(submit_dir / "00/00" / f"{JOB}.multipart/1000-transfer", (written, written))
    at_2000 = replace(effects(broker), now=lambda: 2000.0)
    prejob.run(PlannedFiles(submit_dir, JOB), 0, CONFIG, at_2000)
    assert after(submit_dir, broker)[0]["files"] == files


def test_a_broker_that_is_away_is_recorded(submit_dir: Path) -> None:
    broker = FakeBroker()
    before(submit_dir, broker)
    record(submit_dir)
    job_files.append_lines(submit_dir / job_files.SIZE_JOURNAL, [{"lfn": "f", "bytes": 500}])
    broker.refuses_release = BrokerError("it is away")
    lines = after(submit_dir, broker)
    assert [line["event"] for line in lines] == ["transfer"] * 2 + ["warning"] * 2
    decision = job_files.read_json(submit_dir / "00/00" / f"{JOB}.adon.json")
    assert decision["given_back"] is False


def test_what_the_broker_never_heard_of_is_no_warning(submit_dir: Path) -> None:
    broker = FakeBroker(BrokerError("away"))
    before(submit_dir, broker)
    broker.refuses_release = BrokerError("no such transit", "unknown_transit")
    lines = after(submit_dir, broker)
    assert [line["event"] for line in lines] == ["transfer"] * 2


def test_what_was_never_granted_is_no_warning(submit_dir: Path) -> None:
    """As where a site is unknown to the broker, which PRE has said."""
    broker = FakeBroker()
    refused = BrokerError("no such site", "unknown_site")
    broker.refuses = {"b": refused}
    before(submit_dir, broker)
    broker.refuses_release = BrokerError("no such transit", "unknown_transit")
    assert [line["event"] for line in after(submit_dir, broker)] == ["transfer"] * 2
    decision = job_files.read_json(submit_dir / "00/00" / f"{JOB}.adon.json")
    assert decision["given_back"] is True


@pytest.mark.parametrize("folder", [True, False])
def test_kickstart_output_serves_where_there_are_no_records(submit_dir: Path, folder: bool) -> None:
    if folder:
        (submit_dir / "00/00" / f"{JOB}.multipart").mkdir()
    (submit_dir / "00/00" / f"{JOB}.out").write_text("- invocation: True\n" + RECORD)
    lines = after(submit_dir, FakeBroker())
    assert (lines[0]["files"], lines[0]["seconds"]) == (1, 2.0)


def test_before_a_transfer_there_is_room_for_its_records(submit_dir: Path) -> None:
    before(submit_dir, FakeBroker())
    assert (submit_dir / "00/00" / f"{JOB}.multipart").is_dir()


def test_sizes_of_what_a_job_wrote_go_into_the_journal(submit_dir: Path) -> None:
    outputs = {"x.bam": 12, "x.bai": 3}
    text = f"noise\n{job_files.OUR_RECORD} {json.dumps({'outputs': outputs})}\n"
    (submit_dir / "00/00/sort_ID2.out").write_text(text)
    keepsizes.keep_sizes(PlannedFiles(submit_dir, "sort_ID2"))
    assert job_files.known_sizes(submit_dir) == outputs


def test_before_a_transfer_sizes_are_kept_of_what_its_parents_wrote(submit_dir: Path) -> None:
    text = f"{job_files.OUR_RECORD} {json.dumps({'outputs': {'x.bam': 12}})}\n"
    (submit_dir / "00/00/sort_ID2.out").write_text(text)
    (dag,) = submit_dir.glob("*.dag")
    with dag.open("a") as lines:
        lines.write(f"PARENT sort_ID2 CHILD {JOB}\nPARENT create_dir_x CHILD {JOB}\n")
    before(submit_dir, FakeBroker())
    assert job_files.known_sizes(submit_dir) == {}  # Pegasus's POST keeps them
    with (submit_dir / "braindump.yml").open("a") as lines:
        lines.write('planner: "adon"\n')
    before(submit_dir, FakeBroker())
    assert job_files.known_sizes(submit_dir) == {"x.bam": 12}


def test_sizes_that_kickstart_saw_go_into_the_journal(submit_dir: Path) -> None:
    (submit_dir / "00/00/sort_ID2.out").write_text(
        "- invocation: True\n  start: 2023-11-14T22:13:22.500+00:00\n  duration: 1.5\n"
        "  mainjob:\n    status:\n      raw: 0\n  files:\n"
        '    x.bam:\n      lfn: "x.bam"\n      size: 12\n      output: True\n'
        '    in.sam:\n      lfn: "in.sam"\n      size: 40\n    stdin:\n      size: 0\n'
    )
    keepsizes.keep_sizes(PlannedFiles(submit_dir, "sort_ID2"))
    assert job_files.known_sizes(submit_dir) == {"x.bam": 12}


@pytest.mark.parametrize(
    "text",
    ["", "adon-job-record: {", "adon-job-record: []", "adon-job-record: " + "[" * 9999, "\xff"],
)
def test_an_output_without_a_record(submit_dir: Path, text: str) -> None:
    (submit_dir / "00/00/sort_ID2.out").write_text(text)
    keepsizes.keep_sizes(PlannedFiles(submit_dir, "sort_ID2"))
    assert job_files.known_sizes(submit_dir) == {}


@pytest.mark.parametrize("output", [f"./00/00/{JOB}.out", f"00/00/{JOB}.out.001"])
def test_a_warning_names_the_job_whatever_is_wrong(submit_dir: Path, output: str) -> None:
    arguments = ["--config", "/nowhere.json", "--retry", "0", "--", "-r", "0", output]
    assert hookrun.post(arguments, submit_dir) == 0
    assert [line["job"] for line in journal(submit_dir)] == [JOB]


STAGE_IN = "stage_in_local_mu_0_0"
PATIENT = HookConfig("http://127.0.0.1:1", patience_s=1.0)


FATES = st.lists(st.sampled_from(["ok", "ok", "ok", "before", "after", "refused", "lost"]))
STATES = st.sampled_from([TransitState.INSTALLED, TransitState.QUEUED])
RUNS = st.lists(st.tuples(st.sampled_from(["pre", "post"]), st.integers(0, 2), FATES, STATES))


NOW = TransitState.INSTALLED
ONCE = [("pre", 0, ["ok"], NOW), ("post", 0, ["ok"], NOW)]  # the same again gets other ids


@settings(max_examples=30)
@given(RUNS, st.integers(0, 3))
@example([*ONCE, ("pre", 0, ["ok", "after"], NOW)], 1)
@example([*ONCE, ("pre", 0, ["ok", "lost"], NOW), ONCE[1]], 1)
def test_after_a_pre_and_a_post_that_went_well_nothing_is_held(
    runs: list[tuple[str, int, list[str], TransitState]], last: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lists = {STAGE_IN: [move("f", "a", "mu", 100), move("g", "b", "mu", 50)]}
        where = make_submit_dir(Path(folder) / "run", lists)
        broker = BrokerModel()
        write = job_files.write_json

        def written(path: Path, data: object) -> None:
            with broker.step():
                write(path, data)

        patch.setattr(job_files, "write_json", written)

        def run(hook: str, retry: int) -> None:
            seconds = [0.0]

            def sleep(some: float) -> None:
                seconds[0] += some

            effects = Effects(
                broker, Budget(1e9), lambda: 1.0, lambda: seconds[0], sleep
            )  # fmt: skip
            if hook == "pre":
                prejob.run(PlannedFiles(where, STAGE_IN), retry, PATIENT, effects)
            else:
                postjob.run(PlannedFiles(where, STAGE_IN), retry, 0, PATIENT, effects)

        for hook, retry, fates, state in runs:
            broker.fate, broker.state = iter(fates), state
            with suppress(Killed):
                run(hook, retry)
        broker.fate, broker.state = iter(()), TransitState.INSTALLED
        run("pre", last)
        # What the job has now is all that is held: two pairs, and nothing of the earlier runs.
        held = broker.live()
        assert len(held) == 2 and all(f":{STAGE_IN}:{last}:" in name for name in held)
        run("post", last)
        assert broker.live() == []
