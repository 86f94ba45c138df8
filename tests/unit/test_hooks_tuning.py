"""A transfer is tuned by its submit file and by the tools that it finds: all of it can be undone,
and nothing else changes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hooks_world import FakeBroker, journal
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_world import SUBMIT_PATH, File, Planned, gsiftp
from planner_world import FIXED, MAPPING, make_case

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.transferlist import SitePair, SiteUrl, Transfer, site_pairs
from network_provisioner.base.model import SEEN, Service
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from pegasus_hooks import planner
from pegasus_hooks.prepost import postjob, prejob, tuning
from pegasus_hooks.prepost.tuning import AT_ONCE, TOOLS, TransferTuning

JOB = "stage_in_local_mu_0_0"


def between(src: str, dst: str) -> Transfer:
    return Transfer("f", (SiteUrl("a", f"{src}://h/f"),), (SiteUrl("b", f"{dst}://k/f"),), 10)


SERVERS = [between("gsiftp", "gsiftp")]


@pytest.fixture
def text(plan: Planned) -> str:
    return plan.transfer_job(
        JOB, [File("f", "a", gsiftp("a", "f"), "b", gsiftp("b", "f"), 10)]
    ).read_text()


def environment(text: str) -> dict[str, str]:
    line = next(x for x in text.splitlines() if x.startswith("environment"))
    words = re.findall(r"(\w+)=([^ '\"]*)", line)
    return dict(words)


def untuned(text: str) -> str:
    """What PRE makes of a transfer job of the submit host that nobody wants tuned."""
    return tuning.tuned_submit_file(text, [], TransferTuning())[0]


def test_a_transfer_job_of_the_submit_host_begins_at_once(text: str) -> None:
    made = untuned(text)
    assert environment(made) == {**environment(text), "PYTHONPATH": str(AT_ONCE)}
    assert tuning.original_submit_file(made) == text and untuned(made) == made
    own = text.replace("PEGASUS_SITE=", "PYTHONPATH=/a:/b PEGASUS_SITE=")
    assert environment(untuned(own))["PYTHONPATH"] == f"{AT_ONCE}:/a:/b"
    remote = text.replace("universe = local", "universe = vanilla")
    assert untuned(remote) == remote


def test_threads_of_pegasus_transfer_begin_a_tenth_of_a_second_apart(tmp_path: Path) -> None:
    """Its own class of threads, in a process as its job's; another sitecustomize is imported."""
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    asks = (
        "import queue, threading; from Pegasus import transfer; q = queue.Queue()\n"
        "threads = [transfer.WorkThread(n, q, 1, q) for n in (1, 2, 8)]\n"
        "transfer.time.sleep = lambda seconds: print(round(seconds, 3))\n"
        "for thread in threads: thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", asks],
        env={**os.environ, "PYTHONPATH": f"{AT_ONCE}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["theirs", "0.0", "0.1", "0.7"], done.stderr


def test_streams_and_buffer_go_into_the_environment(text: str) -> None:
    made, holds = tuning.tuned_submit_file(text, SERVERS, TransferTuning(8, 4 << 20))
    assert holds == TransferTuning(8, 4 << 20)
    variables = environment(made)
    assert (variables["ADON_STREAMS"], variables["ADON_BUFFER_BYTES"]) == ("8", str(4 << 20))
    assert variables["PATH"] == f"{TOOLS}:{SUBMIT_PATH}"
    # The rest of the job is as Pegasus wrote it.
    old, new = text.splitlines(), made.splitlines()
    assert [x for x in new if x not in old and not x.startswith(("environment", "# adon"))] == []
    original = environment(text)
    assert all(variables[k] == v for k, v in original.items() if k != "PATH")
    assert "GRIDSTART_CLEANUP='/bin/rm -rf " in made


def test_only_transfer_jobs_are_told_where_to_leave_records_and_only_where_nobody_did(
    text: str,
) -> None:
    made, _ = tuning.tuned_submit_file(text, SERVERS, TransferTuning(), "/a b.multipart")
    assert " 'PEGASUS_MULTIPART_DIR=/a b.multipart'" in made
    own = text.replace("PEGASUS_SITE=", "PEGASUS_MULTIPART_DIR=/mine PEGASUS_SITE=")
    compute = text.replace("pegasus::transfer", "soykb::sort")
    assert environment(tuning.tuned_submit_file(own, SERVERS, TransferTuning(), "/r")[0]) == {
        **environment(own),
        "PYTHONPATH": str(AT_ONCE),
    }
    assert tuning.tuned_submit_file(compute, SERVERS, TransferTuning(), "/r") == (
        compute,
        TransferTuning(),
    )


def test_files_side_by_side_are_an_argument(text: str) -> None:
    made, holds = tuning.tuned_submit_file(text, SERVERS, TransferTuning(threads=5))
    assert holds == TransferTuning(threads=5)
    assert "--threads 5 " in job_files.command(made, "arguments")
    assert environment(made) == environment(untuned(text))


def test_without_that_argument_they_are_a_variable(text: str) -> None:
    made, _ = tuning.tuned_submit_file(
        text.replace("--threads 2", ""), SERVERS, TransferTuning(threads=5)
    )
    assert environment(made)["PEGASUS_TRANSFER_THREADS"] == "5"


def test_irods_has_its_threads_for_each_file(text: str) -> None:
    made, holds = tuning.tuned_submit_file(
        text, [between("file", "irods")], TransferTuning(8, 1, 6)
    )
    assert holds == TransferTuning(threads=6)
    assert environment(made)["ADON_THREADS"] == "6"
    assert "--threads 2 " in job_files.command(made, "arguments")


@pytest.mark.parametrize(
    ("transfers", "want"),
    [
        (SERVERS, TransferTuning()),
        (SERVERS, TransferTuning(streams=4)),  # as pegasus-transfer has it anyway
        ([between("file", "https")], TransferTuning(8, 4096)),
        ([between("file", "file")], TransferTuning(8)),
        ([], TransferTuning(8, 4096)),
    ],
)
def test_what_needs_no_change_is_left_alone(
    text: str, transfers: list[Transfer], want: TransferTuning
) -> None:
    assert tuning.tuned_submit_file(text, transfers, want) == (untuned(text), TransferTuning())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"pegasus::transfer"', '"t::split:1.0"'),
        ('environment = "', "environment = "),  # the older syntax, without quotes
        ("environment = ", "environment="),
        ("arguments = ", "# arguments = "),
        ("queue\n", 'environment = "A=b"\nqueue\n'),
    ],
)
def test_a_submit_file_in_another_form_is_left_alone(text: str, old: str, new: str) -> None:
    other = text.replace(old, new)
    assert other != text
    assert tuning.tuned_submit_file(other, SERVERS, TransferTuning(8, 4096, 5)) == (
        other,
        TransferTuning(),
    )


@pytest.mark.parametrize(
    ("src", "dst", "at"),
    [
        ("gsiftp://h/f", "gsiftp://k/f", "client"),
        ("file:///f", "gsiftp://k/f", "src"),
        ("gsiftp://h/f", "file:///f", "dst"),
        ("https://h/f", "file:///f", "seen"),
        ("file:///f", "scp://k/f", "seen"),
        ("file:///f", "file:///g", ""),
        ("gsiftp://h/f", "irods://k/f", ""),
    ],
)
def test_whose_ports_can_be_chosen(text: str, src: str, dst: str, at: str) -> None:
    transfer = Transfer("f", (SiteUrl("a", src),), (SiteUrl("b", dst),), 10)
    pair = SitePair("a", "b", [transfer])
    assert tuning.ports_at(pair, text, watched=True) == at
    assert tuning.ports_at(pair, text) == ("" if at == SEEN else at)
    other = text.replace("universe = local", "universe = vanilla")
    assert tuning.ports_at(pair, other, watched=True) == ""
    taken = text.replace('environment = "', 'environment = "GLOBUS_TCP_PORT_RANGE=5000,5100 ')
    assert taken != text and tuning.ports_at(pair, taken) == ""
    client = {"client": ""}.get(at, at and SEEN)
    assert tuning.ports_at(pair, taken, watched=True) == client


def test_where_bytes_are_relayed_this_machine_is_the_other_end(text: str) -> None:
    transfer = Transfer("f", (SiteUrl("a", "gsiftp://h/f"),), (SiteUrl("b", "irods://k/f"),), 10)
    assert tuning.ports_at(SitePair("a", "local", [transfer]), text) == "dst"
    assert tuning.ports_at(SitePair("local", "b", [transfer]), text) == ""


def test_ports_go_into_the_environment(text: str) -> None:
    made, _ = tuning.tuned_submit_file(text, SERVERS, TransferTuning(), ports=[20_224, 20_479])
    # Words with a comma need no quotes (condor_submit, environment).
    assert "ADON_PORTS=20224,20479" in made and environment(made)["PATH"].startswith(f"{TOOLS}:")
    assert tuning.original_submit_file(made) == text


def test_a_job_at_a_site_has_none_of_our_tools(text: str) -> None:
    remote = text.replace("universe = local", "universe = vanilla")
    made, holds = tuning.tuned_submit_file(remote, SERVERS, TransferTuning(8, 4096, 5))
    assert holds == TransferTuning(threads=5)
    assert environment(made) == environment(remote)
    assert "--threads 5 " in job_files.command(made, "arguments")


WORDS = st.lists(
    st.tuples(
        st.from_regex(r"[A-Z][A-Z_]{0,5}", fullmatch=True),
        st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12),
    ),
    unique_by=lambda word: word[0],
    max_size=5,
)
WANTED = st.builds(TransferTuning, st.integers(0, 64), st.integers(0, 1 << 30), st.integers(0, 64))
KINDS = st.sampled_from(["gsiftp", "file", "irods", "https"])


def quoted(name: str, value: str) -> str:
    """A word as condor_submit reads it, by its manual: quotes inside quotes stand twice."""
    text = f"{name}={value}".replace('"', '""').replace("'", "''")
    return f"'{text}'" if set(text) & set(" \t'") else text


@settings(max_examples=20)
@given(WORDS, WANTED, WANTED, KINDS, KINDS, st.booleans())
def test_every_edit_can_be_undone_and_says_what_is_wanted_last(
    words: list[tuple[str, str]],
    first: TransferTuning,
    last: TransferTuning,
    src: str,
    dst: str,
    local: bool,
) -> None:
    line = " ".join(quoted(name, value) for name, value in words)
    text = (
        f'environment = "{line}"\narguments = "x --threads 2 y"\n'
        f"universe = {'local' if local else 'vanilla'}\n"
        '+pegasus_wf_xformation = "pegasus::transfer"\nqueue\n'
    )
    moves = [between(src, dst)]
    made, holds = tuning.tuned_submit_file(text, moves, first)
    assert tuning.original_submit_file(made) == text
    again, same = tuning.tuned_submit_file(made, moves, first)
    assert (again, same) == (made, holds)
    assert tuning.tuned_submit_file(made, moves, last) == tuning.tuned_submit_file(
        text, moves, last
    )
    plain, holds = tuning.tuned_submit_file(made, moves, TransferTuning())
    assert holds == TransferTuning()
    if local and "irods" in (src, dst):  # iRODS's commands may have to be ours
        assert environment(plain)["ADON_PYTHON"] == sys.executable
    else:
        assert plain == untuned(text)
    # What the user set is still there, as it was.
    for name, value in words:
        if name != "PATH":
            assert quoted(name, value) in made
        elif made.count("PATH="):
            assert value in made.replace("''", "'").replace('""', '"')


@pytest.mark.parametrize(
    ("file_bytes", "files", "rate_bps", "expected"),
    [
        (10**6, 1000, 200e6, 19),  # 0.75 s of a path are 18.75 files, and one is on its way
        (10**6, 7, 200e6, 7),
        (10**9, 1000, 200e6, 1),
        (10**9, 1, 200e6, 1),
        (0, 1000, 200e6, 0),
        (10**6, 1000, 0.0, 0),
    ],
)
def test_so_many_files_fill_a_path(
    file_bytes: int, files: int, rate_bps: float, expected: int
) -> None:
    assert tuning.files_at_once(file_bytes, files, rate_bps) == expected


@pytest.mark.parametrize(
    ("src", "want", "at_once", "expected"),
    [
        ("gsiftp", TransferTuning(), 20, TransferTuning(1, 0, 8, 8)),
        ("gsiftp", TransferTuning(8, 4096), 3, TransferTuning(2, 4096, 3, 3)),
        ("gsiftp", TransferTuning(), 2, TransferTuning()),  # as the planner has it
        ("gsiftp", TransferTuning(threads=5), 20, TransferTuning(threads=5)),
        ("https", TransferTuning(), 20, TransferTuning(0, 0, 20, 20)),
        ("https", TransferTuning(), 500, TransferTuning(0, 0, 32, 32)),
        ("irods", TransferTuning(), 20, TransferTuning(0, 0, 4, 4)),
        ("irods", TransferTuning(threads=6), 20, TransferTuning(threads=6)),
    ],
)
def test_many_small_files_move_side_by_side(
    text: str, src: str, want: TransferTuning, at_once: int, expected: TransferTuning
) -> None:
    moves = [between(src, "gsiftp" if src == "gsiftp" else "file")] * 400
    made, holds = tuning.tuned_submit_file(text, moves, want, at_once=at_once)
    assert holds == expected
    at_once = expected.threads or 2
    if src == "irods" and want.threads:  # those are of each file
        at_once = 2
    assert f"--threads {at_once} " in job_files.command(made, "arguments")


def test_the_most_that_any_template_wants() -> None:
    services = [Service(streams=8, threads=2), Service(buffer_bytes=4096, threads=3)]
    assert tuning.wanted_tuning(services) == TransferTuning(8, 4096, 3)
    assert tuning.wanted_tuning([]) == TransferTuning()


def test_pre_tunes_and_post_reports(plan: Planned, text: str) -> None:
    submit_file = plan.folder / f"{JOB}.sub"
    submit_file.chmod(0o640)
    broker = FakeBroker()
    os.utime(submit_file, ns=(10**18, 10**18))
    broker.service = Service(streams=8, buffer_bytes=4096, threads=3)
    config = HookConfig("http://127.0.0.1:1")

    def before() -> dict[str, object]:
        prejob.run(PlannedFiles(plan.where, JOB), 0, config, Effects(broker, Budget(60.0)))
        return job_files.read_json(plan.folder / f"{JOB}.adon.json")

    tuned = {"streams": 8, "buffer_bytes": 4096, "threads": 3}
    assert before()["tuned"] == tuned
    made = submit_file.read_text()
    assert environment(made)["ADON_STREAMS"] == "8"
    assert before()["tuned"] == tuned and submit_file.read_text() == made
    assert submit_file.stat().st_mode & 0o777 == 0o640
    assert submit_file.stat().st_mtime_ns == 10**18
    assert {"event": "tuned", **tuned}.items() <= journal(plan.where)[1].items()
    postjob.run(PlannedFiles(plan.where, JOB), 0, 0, config, Effects(broker, Budget(60.0)))
    assert broker.used == [{**tuned, "retries": 0, "files": 0}]
    # When the template wants nothing any more, or nobody knows, it is as Pegasus wrote it; but for
    # where the records go, and the sleep.
    broker.service = Service()
    assert before()["tuned"] == {} and tuning.original_submit_file(submit_file.read_text()) == text
    records = {"PEGASUS_MULTIPART_DIR": "$Fpn(output).multipart"}
    assert environment(submit_file.read_text()) == {**environment(untuned(text)), **records}
    assert list(plan.folder.glob(".*")) == []


def test_few_files_stay_with_one_call_of_globus_url_copy(text: str) -> None:
    made, holds = tuning.tuned_submit_file(text, SERVERS * 149, TransferTuning(), at_once=20)
    assert (made, holds) == (untuned(text), TransferTuning())
    assert (
        tuning.tuned_submit_file(text, SERVERS * 150, TransferTuning(), at_once=20)[1].threads == 3
    )


def test_pre_has_small_files_move_side_by_side(plan: Planned) -> None:
    files = [
        File(f"f{n}", "a", gsiftp("a", f"f{n}"), "b", gsiftp("b", f"f{n}"), 10**6)
        for n in range(500)
    ]
    submit_file = plan.transfer_job(JOB, files)
    config = HookConfig("http://127.0.0.1:1")
    broker = FakeBroker()
    prejob.run(PlannedFiles(plan.where, JOB), 0, config, Effects(broker, Budget(60.0)))
    decision = job_files.read_json(plan.folder / f"{JOB}.adon.json")
    assert decision["tuned"] == {"streams": 1, "threads": 8, "side_by_side": 8}
    assert "--threads 8 " in job_files.command(submit_file.read_text(), "arguments")
    postjob.run(PlannedFiles(plan.where, JOB), 0, 0, config, Effects(broker, Budget(60.0)))
    assert broker.used == [
        {"streams": 0, "buffer_bytes": 0, "threads": 0, "retries": 0, "files": 0}
    ]


def test_a_submit_file_that_cannot_be_written_costs_the_tuning_only(
    plan: Planned, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    broker = FakeBroker()
    broker.service = Service(streams=8)
    monkeypatch.setattr(tuning, "tune", full)
    config = HookConfig("http://127.0.0.1:1")
    prejob.run(PlannedFiles(plan.where, JOB), 0, config, Effects(broker, Budget(60.0)))
    decision = job_files.read_json(plan.folder / f"{JOB}.adon.json")
    assert decision["pairs"][0]["state"] == "installed" and decision["tuned"] == {}
    assert "not tuned" in job_files.warnings(plan.where)[0]
    assert (plan.folder / f"{JOB}.sub").read_text() == text


@pytest.mark.parametrize(
    ("src", "dst", "tuned", "used"),
    [
        ("gsiftp", "gsiftp", {}, (4, 0, 0)),
        ("gsiftp", "gsiftp", {"streams": 8, "buffer_bytes": 9}, (8, 9, 0)),
        ("file", "gsiftp", {"streams": 8, "buffer_bytes": 9}, (1, 9, 0)),
        ("file", "irods", {"threads": 6}, (0, 0, 6)),
        ("irods", "file", {}, (0, 0, 4)),
        ("https", "file", {"streams": 8, "threads": 6}, (0, 0, 6)),
    ],
)
def test_what_a_transfer_used(
    src: str, dst: str, tuned: dict[str, int], used: tuple[int, int, int]
) -> None:
    (pair,) = site_pairs([between(src, dst)], "b")
    names = ("streams", "buffer_bytes", "threads")
    assert tuning.used_tuning(pair, tuned) == dict(zip(names, used, strict=True))


# -- the tools -------------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A folder with programs that print their arguments, one to a line."""
    folder = tmp_path / "real"
    folder.mkdir()
    for name in ("globus-url-copy", "iget", "iput", "irsync"):
        (folder / name).write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\nexit 7\n')
        (folder / name).chmod(0o755)
    return folder


def call(real: Path, name: str, *arguments: str, **variables: str) -> list[str]:
    done = subprocess.run(
        [str(TOOLS / name), *arguments],
        env={"PATH": f"{TOOLS}::{TOOLS}:/nowhere:{real}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    program, *rest = done.stdout.splitlines()
    assert program == str(real / name)
    return rest


COPY = ("-r", "-create-dest", "-parallel", "4", "-fast", "-f", "a list")
TUNED = {"ADON_STREAMS": "8", "ADON_BUFFER_BYTES": "4096", "ADON_THREADS": "6"}


@pytest.mark.parametrize(
    ("name", "given_", "expected"),
    [
        (
            "globus-url-copy",
            COPY,
            ["-tcp-bs", "4096", *(w if w != "4" else "8" for w in COPY)],
        ),
        ("globus-url-copy", ("-p", "4", "x", "y"), ["-tcp-bs", "4096", "-p", "8", "x", "y"]),
        # Not from server to server: one stream, as pegasus-transfer leaves it.
        ("globus-url-copy", ("-r", "-f", "l"), ["-tcp-bs", "4096", "-r", "-f", "l"]),
        ("iget", ("-v", "-N", "4", "a b", "c"), ["-v", "-N", "6", "a b", "c"]),
        ("iput", ("-f", "a", "b"), ["-N", "6", "-f", "a", "b"]),
        ("irsync", ("-N", "4", "", "i:b"), ["-N", "6", "", "i:b"]),
    ],
)
def test_a_tool_is_given_what_the_transfer_is_tuned_with(
    real: Path, name: str, given_: tuple[str, ...], expected: list[str]
) -> None:
    assert call(real, name, *given_, **TUNED) == expected


@pytest.mark.parametrize("name", ["globus-url-copy", "iget", "iput", "irsync"])
@pytest.mark.parametrize("arguments", [COPY, ("-h",), (), ("-N", "4", "*", "$HOME", "a'b\\")])
def test_without_our_variables_a_tool_is_what_it_was(
    real: Path, name: str, arguments: tuple[str, ...]
) -> None:
    assert call(real, name, *arguments) == list(arguments)


@pytest.mark.parametrize("chosen", [{}, {"GLOBUS_TCP_PORT_RANGE": "5000,5100"}])
def test_a_tool_uses_the_ports_it_was_given_but_for_those_that_somebody_chose(
    real: Path, chosen: dict[str, str]
) -> None:
    shown = 'printf "%s\\n" "$0" "$GLOBUS_TCP_PORT_RANGE" "$GLOBUS_TCP_SOURCE_RANGE"'
    (real / "globus-url-copy").write_text(f"#!/bin/sh\n{shown}\nexit 7\n")
    ports = "20224,20479"
    output = call(real, "globus-url-copy", "a", "b", ADON_PORTS=ports, **chosen)
    assert output == (["5000,5100", ""] if chosen else [ports, ports])


@pytest.mark.parametrize("question", ["-version", "-h", "--version"])
def test_a_question_after_the_version_is_passed_on(real: Path, question: str) -> None:
    assert call(real, "globus-url-copy", question, **TUNED) == [question]
    assert call(real, "iget", question, **TUNED) == [question]


def test_a_tool_that_is_not_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(TOOLS / "iget"), "-h"],
        env={"PATH": f"{TOOLS}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 127 and "iget: not found on PATH" in done.stderr


def test_a_folder_of_tools_that_is_reached_by_a_link(real: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(TOOLS)
    done = subprocess.run(
        ["iget", "a"],
        env={**os.environ, "PATH": f"{tmp_path / 'link'}:{TOOLS}:{real}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [str(real / "iget"), "a"]


def test_transfer_jobs_of_the_embedded_planner_can_be_tuned(tmp_path: Path) -> None:
    case = make_case(tmp_path)
    workflow = planner.plan(
        case.inputs(), case.sources, MAPPING, tmp_path / "submit", "store", None, FIXED
    )
    local = [j for j in workflow.jobs.values() if j.transfers and j.site == "local"]
    assert local
    for job in local:
        text = (workflow.submit_dir / job.folder / f"{job.name}.sub").read_text()
        made, holds = tuning.tuned_submit_file(text, SERVERS, TransferTuning(8, 4096, 5))
        assert holds == TransferTuning(8, 4096, 5) and tuning.original_submit_file(made) == text
        assert environment(made)["PATH"].startswith(f"{TOOLS}:")
        assert "--threads 5" in job_files.command(made, "arguments")
