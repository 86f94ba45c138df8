"""The submit directory: Pegasus's shape, whole or not there, the same for the same plan."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_world import FIXED, MAPPING, RAW, ROOT, Case

from monitors.workflows.planned import job_files, transferlist
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.submit_dir import JobKind, SubmitDir
from network_provisioner.base.errors import InputError
from pegasus_hooks.planner import Options, PlannedWorkflow, plan
from pegasus_hooks.planner import plan as plan_function
from pegasus_hooks.planner.programs import split_arguments
from pegasus_hooks.planner.submitfile import quoted_words

plan_module = sys.modules[plan_function.__module__]


def planned(case: Case, base: str = "submit", options: Options = FIXED) -> PlannedWorkflow:
    hooks = case.root / "hooks.json"
    hooks.write_text('{"broker": "http://127.0.0.1:1"}')
    return plan(case.inputs(), case.sources, MAPPING, case.root / base, "store", hooks, options)


def tree(folder: Path) -> dict[str, bytes]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_the_directory_has_pegasus_shape(case: Case) -> None:
    workflow = planned(case)
    assert workflow.submit_dir == case.root / "submit/u/pegasus/mini/run0001"
    assert workflow.dag == workflow.submit_dir / "mini-0.dag"
    assert {p.name for p in workflow.submit_dir.iterdir()} == {
        "00", "adon-jobrun.py", "braindump.yml", "catalogs", "mini-0.dag", "mini-0.metadata",
        "mini-0.notify", "pegasus.properties", "workflow.yml",
    }  # fmt: skip
    dump = job_files.braindump(workflow.submit_dir)
    assert (dump["wf_uuid"], dump["dag"], dump["dax_label"]) == ("fixed-uuid", "mini-0.dag", "mini")
    assert dump["submit_dir"] == str(workflow.submit_dir)
    assert "embedded" in dump["planner_version"]
    assert "without Pegasus" in workflow.output
    assert sorted(p.name for p in (workflow.submit_dir / "catalogs").iterdir()) == [
        "replicas.yml", "sites.yml", "transformations.yml",
    ]  # fmt: skip


def test_monitors_and_hooks_understand_it(case: Case) -> None:
    workflow = planned(case)
    submit_dir = SubmitDir(workflow.submit_dir)
    assert submit_dir.workflow == "fixed-uuid"
    kinds = {name: submit_dir.job(name).kind for name in submit_dir.nodes}
    assert kinds == {name: JobKind(str(job.kind)) for name, job in workflow.jobs.items()}
    split = submit_dir.job("split_ID1")
    assert (split.site, split.transformation, split.task) == ("mu", "t::split:1.0", "ID1")
    assert split.output == workflow.submit_dir / "00/00/split_ID1.out"
    for name, job in workflow.jobs.items():
        listing = PlannedFiles(workflow.submit_dir, name).file(".in")
        assert listing.exists() == (job.task is None)
        if job.task is None:
            assert transferlist.read(listing) == job.entries


def test_the_lines_of_the_dag(case: Case) -> None:
    lines = planned(case).dag.read_text().splitlines()
    hooks = f"--config {case.root}/hooks.json"
    python = "/usr/bin/python3 -I -S"
    assert lines[:5] == [
        "JOBSTATE_LOG jobstate.log",
        "MAXJOBS cleanup 4",
        "MAXJOBS registration 1",
        "MAXJOBS stageout 10",
        "MAXJOBS stagein 10",
    ]
    name = "stage_in_local_mu_0_0"
    at = lines.index(f"JOB {name} 00/00/{name}.sub")
    assert lines[at + 1 : at + 7] == [
        f'VARS {name} My.DAGNodeRetry="$(RETRY)"',
        f"RETRY {name} 2",
        f"SCRIPT PRE {name} {python} {ROOT}/pegasus_hooks/pre.py {hooks} $JOB $RETRY $MAX_RETRIES",
        f"SCRIPT POST {name} {python} {ROOT}/pegasus_hooks/post.py {hooks} $JOB $RETRY $RETURN",
        f"PRIORITY {name} 700",
        f"CATEGORY {name} stagein",
    ]
    assert "PARENT split_ID1 CHILD count_ID3" in lines
    assert not [x for x in lines if x.startswith("SCRIPT PRE split")]
    assert not [x for x in lines if x.startswith("SCRIPT POST split")]
    assert not [x for x in lines if x.startswith("SCRIPT") and "create_dir" in x]


def test_submit_files(case: Case) -> None:
    workflow = planned(case)
    folder = workflow.submit_dir / "00/00"
    inside = (folder / "split_ID1.sub").read_text().splitlines()
    assert "universe = vanilla" in inside
    assert 'requirements = PegasusSite == "mu"' in inside
    assert "should_transfer_files = YES" in inside
    assert f"input = {folder}/split_ID1.task" in inside
    assert '+pegasus_wf_dax_job_id = "ID1"' in inside
    (environment,) = (x for x in inside if x.startswith("environment"))
    assert "'WHERE=at mu'" in environment
    here = (folder / "stage_in_local_mu_0_0.sub").read_text()
    assert "universe = local" in here and "pegasus-transfer.py --threads 1" in here
    assert f"PEGASUS_MULTIPART_DIR={folder}/stage_in_local_mu_0_0.multipart" in here
    assert (folder / "stage_in_local_mu_0_0.multipart").is_dir()


def test_the_same_plan_is_the_same_to_the_byte(case: Case) -> None:
    script = (
        "import planner_world as w, sys; from pathlib import Path; "
        "from pegasus_hooks.planner import plan; c = w.Case(Path(sys.argv[1])); "
        "plan(c.inputs(), c.sources, w.MAPPING, c.root / 's', 'store', None, w.FIXED)"
    )
    seen = []
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
        command = [sys.executable, "-c", script, str(case.root)]
        subprocess.run(command, check=True, env=environment)
        seen.append(tree(case.root / "s/u/pegasus/mini/run0001"))
        (case.root / "s").rename(case.root / f"s{seed}")
    assert seen[0] == seen[1]


def test_a_plan_that_fails_leaves_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan_module, "braindump_text", full)
    with pytest.raises(InputError, match=r"cannot be written: No space left"):
        planned(case)
    assert list((case.root / "submit/u/pegasus/mini").iterdir()) == []


def test_what_a_killed_planner_left_is_removed(case: Case) -> None:
    family = case.root / "submit/u/pegasus/mini"
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = socket.gethostname()
    (family / f".run0001.{here}.{gone.pid}").mkdir(parents=True)
    others = {
        f".run0001.{here}.1",  # of a planner that still runs
        f".run0001.another-host.{gone.pid}",
        f".run0001.{gone.pid}",
        f".runs.{here}.{gone.pid}",
        f".running.{gone.pid}",
    }
    for name in others:
        (family / name).mkdir()
    assert planned(case).submit_dir.name == "run0001"
    assert {p.name for p in family.iterdir()} == {"run0001", *others}


def test_a_number_taken_meanwhile_is_not_overwritten(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(case)
    before = tree(first.submit_dir)
    monkeypatch.setattr(plan_module, "_next_run", lambda _parent: 1)
    assert planned(case).submit_dir.name == "run0002"
    assert tree(first.submit_dir) == before


def test_pegasus_transfer_of_the_site_is_used_where_the_catalog_names_one(case: Case) -> None:
    place = {"name": "local", "pfn": "/opt/pegasus/bin/pegasus-transfer", "type": "installed"}
    entry = {"namespace": "pegasus", "name": "transfer", "sites": [place]}
    case.change("transformations", lambda d: d["transformations"].append(entry))
    text = (planned(case).submit_dir / "00/00/stage_in_local_mu_0_0.sub").read_text()
    assert "executable = /opt/pegasus/bin/pegasus-transfer\n" in text
    assert 'arguments = "--threads 1 --max-attempts 1"' in text


def test_resources_and_dagman_profiles(case: Case) -> None:
    case.change("workflow", lambda d: d["jobs"][0].update(
        profiles={"pegasus": {"cores": "2", "memory": "1024.5"},
                  "dagman": {"retry": "7", "priority": "3", "category": "big"}}
    ))  # fmt: skip
    workflow = planned(case)
    text = (workflow.submit_dir / "00/00/split_ID1.sub").read_text()
    assert "request_cpus = 2\n" in text and "request_memory = 1025 MB\n" in text
    dag = workflow.dag.read_text()
    assert "RETRY split_ID1 7\n" in dag and "PRIORITY split_ID1 3\n" in dag
    assert "CATEGORY split_ID1 big\n" in dag


def priorities(workflow: PlannedWorkflow, job: str) -> tuple[str, str | None]:
    """That of the submit file, and that of the DAG."""
    (submit,) = re.findall(
        r"(?m)^priority = (.*)$", (workflow.submit_dir / f"00/00/{job}.sub").read_text()
    )
    dag = re.findall(rf"(?m)^PRIORITY {job} (.*)$", workflow.dag.read_text())
    return submit, dag[0] if dag else None


def test_the_mappings_priorities_go_to_dag_and_submit_file_and_the_users_own_wins(
    case: Case,
) -> None:
    own = {"condor": {"priority": "3"}}
    case.change("workflow", lambda d: d["jobs"][0].update(profiles=own))
    workflow = plan(
        case.inputs(), case.sources, MAPPING, case.root / "submit", "store", None, FIXED,
        dict.fromkeys(("ID1", "ID2"), -41),
    )  # fmt: skip
    assert priorities(workflow, "split_ID1") == ("3", "3")
    assert priorities(workflow, "shout_ID2") == ("-41", "-41")
    assert priorities(workflow, "count_ID3") == ("30", "30")
    assert priorities(workflow, "stage_in_local_mu_0_0") == ("700", "700")


def test_a_priority_that_is_no_number_stays_as_it_is_and_a_wrong_one_is_named(case: Case) -> None:
    def with_priority(value: str) -> PlannedWorkflow:
        own = {"condor": {"priority": value}}
        case.change("workflow", lambda d: d["jobs"][0].update(profiles=own))
        return planned(case)

    assert priorities(with_priority("10 * 2"), "split_ID1") == ("10 * 2", None)
    for value in ("1.5", "2147483648", "1e3"):
        with pytest.raises(InputError, match=f"job split_ID1: priority: found '{value}', expected"):
            with_priority(value)


Edit = Callable[[Any], object]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d["jobs"][1].update(profiles={"pegasus": {"clusters.size": "3"}}),
         "job ID2: the job asks for clustering (profile pegasus: clusters.size)"),
        (lambda d: d["jobs"][0]["uses"].append({"lfn": "c", "type": "checkpoint"}),
         "job ID1: the job asks for a checkpoint file ('c')"),
        (lambda d: d["jobs"].append({"type": "pegasusWorkflow", "file": "in.yml", "id": "S"}),
         "job S: the job asks for a sub-workflow (pegasusWorkflow)"),
        (lambda d: d["jobs"][0].update(hooks={"shell": [{"_on": "end", "cmd": "x"}]}),
         "job ID1: the job asks for shell hooks"),
        (lambda d: d["jobs"][0].update(profiles={"dagman": {"PRE": "/x"}}), "dagman: PRE"),
        (lambda d: d["jobs"][0].update(profiles={"globus": {"queue": "q"}}), "namespace 'globus'"),
        (lambda d: d["jobs"][0].update(arguments=['"open']), "job ID1: arguments: No closing"),
        (lambda d: d.update(name="my flow"), "workflow name 'my flow'"),
        (lambda d: d["jobs"][0]["uses"].append({"lfn": "../up", "type": "output"}), "file '../up'"),
        (lambda d: d["jobs"][0]["uses"].append({"lfn": "a'b", "type": "output"}), 'file "a\'b"'),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_by_name(case: Case, edit: Edit, words: str) -> None:
    def with_local(data: Any) -> None:
        edit(data)

    case.change("workflow", with_local)
    inputs = case.inputs()
    mapping = {job: MAPPING.get(job, "local") for job in inputs.workflow.jobs}
    with pytest.raises(InputError) as caught:
        plan(inputs, case.sources, mapping, case.root / "submit", "store", None, FIXED)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not (case.root / "submit").exists() or not list((case.root / "submit").rglob("*.dag"))


def test_a_container_is_refused(case: Case) -> None:
    box = {"name": "c1", "type": "docker", "image": "docker:///c1"}

    def contained(catalog: Any) -> None:
        catalog["transformations"][0]["sites"][0]["container"] = "c1"
        catalog["containers"] = [box]

    case.change("transformations", contained)
    with pytest.raises(InputError, match=r"'t::split:1\.0': found a container"):
        planned(case)


@pytest.mark.parametrize("base", ["with blank", "quote'", "dollar$"])
def test_paths_that_dagman_could_not_carry(case: Case, base: str) -> None:
    with pytest.raises(InputError, match="expected a path without blanks"):
        planned(case, base)


def test_an_output_site_that_is_not_there(case: Case) -> None:
    with pytest.raises(InputError, match="output site 'moon': not in the site catalog"):
        plan(case.inputs(), case.sources, MAPPING, case.root / "s", "moon", None, FIXED)


def test_a_base_directory_that_cannot_be_made(case: Case) -> None:
    (case.root / "submit").write_text("a file")
    with pytest.raises(InputError, match="cannot be written"):
        planned(case)


@given(st.lists(st.text("ab' \"$;\\\t", max_size=6), max_size=5))
def test_htcondor_reads_back_the_words_we_quote(words: list[str]) -> None:
    text = quoted_words(words, "x")
    assert text[0] == text[-1] == '"'
    assert _unquoted(text[1:-1].replace('""', '"')) == words


def _unquoted(text: str) -> list[str]:
    """HTCondor's new argument syntax, after the outer double quotes, as its manual tells it."""
    words: list[str] = []
    word, inside, at = None, False, 0
    while at < len(text):
        char = text[at]
        if char == "'" and inside and text[at + 1 : at + 2] == "'":
            word, at = (word or "") + "'", at + 1
        elif char == "'":
            word, inside = word or "", not inside
        elif char in " \t" and not inside:
            words += [word] if word is not None else []
            word = None
        else:
            word = (word or "") + char
        at += 1
    return words + ([word] if word is not None else [])


@pytest.mark.parametrize(
    ("given_words", "seen"),
    [
        (["-i", "a b", 3.5], ("-i", "a", "b", "3.5")),
        (['"@RG\\tID:x y"'], ("@RG\\tID:x y",)),
        (["'one two'", "#no"], ("one two", "#no")),
        ([], ()),
    ],
)
def test_arguments_are_split_as_htcondor_would(given_words: list[Any], seen: tuple[str]) -> None:
    assert split_arguments(given_words) == seen


def run_task(folder: Path, **task: Any) -> tuple[int, dict[str, Any], str]:
    """Run one task as HTCondor does, in a directory of its own."""
    runner = ROOT / "pegasus_hooks/planner/jobrun.py"
    base = {
        "id": "ID1", "name": "x_ID1", "site": "mu", "transformation": "t::x:1.0",
        "directory": str(folder / "run"), "executable": "/bin/sh", "arguments": [], "inputs": [],
        "outputs": [], "stdin": None, "stdout": None, "stderr": None, "staged_executable": False,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(runner)],
        input=json.dumps(base | task),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    before, _, record = done.stdout.rpartition("adon-job-record:")
    return done.returncode, json.loads(record), before


def test_a_job_run_tells_times_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/in.txt").write_text(RAW)
    code, record, said = run_task(
        tmp_path, arguments=["-c", "cat; printf end; echo > deep/er/out"], stdin="in.txt",
        inputs=["in.txt"], outputs=["deep/er/out"],
    )  # fmt: skip
    assert (code, record["exitcode"]) == (0, 0)
    assert record["inputs"] == {"in.txt": len(RAW)} and record["outputs"] == {"deep/er/out": 1}
    assert record["end"] >= record["start"] and record["cpu_s"] >= 0
    assert said == RAW + "end\n"


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ({"arguments": ["-c", "exit 7"]}, 7),
        ({"arguments": ["-c", "kill -9 $$"]}, 137),
        ({"executable": "/no/such/program"}, 126),
        ({"arguments": ["-c", "true"], "outputs": ["gone"]}, 1),
        ({"stdin": "missing"}, 126),
        ({"executable": "tool", "staged_executable": True}, 126),
    ],
)
def test_how_a_job_failed_is_told(tmp_path: Path, task: dict[str, Any], code: int) -> None:
    exit_code, record, _ = run_task(tmp_path, **task)
    assert exit_code == record["exitcode"] == code


def test_a_staged_program_is_made_executable(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/tool").write_text("#!/bin/sh\necho ran > out\n")
    code, record, _ = run_task(tmp_path, executable="tool", staged_executable=True, outputs=["out"])
    assert (code, record["outputs"]) == (0, {"out": 4})


def test_dagman_can_be_told_to_ask_again(case: Case) -> None:
    workflow = planned(case, options=replace(FIXED, defer_s=15))
    name = "stage_in_local_mu_0_0"
    assert f"SCRIPT DEFER 4 15 PRE {name} " in workflow.dag.read_text()
    assert PlannedFiles(workflow.submit_dir, name).defers(4)
    assert "DEFER" not in planned(case).dag.read_text()


def test_retries_and_scripts_can_be_left_out(case: Case) -> None:
    options = replace(FIXED, cleanup=False, retries=0)
    workflow = plan(case.inputs(), case.sources, MAPPING, case.root / "s", "store", None, options)
    dag = workflow.dag.read_text()
    assert "SCRIPT" not in dag and "cleanup_" not in dag and "RETRY split_ID1 0\n" in dag
