"""The submit directory as hooks see it, their configuration, and their arguments."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hooks_world import make_submit_dir, move
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.base.errors import InputError
from network_provisioner.client import hookconfig
from pegasus_hooks import post, pre
from pegasus_hooks.prepost import hookrun, postjob


def test_the_folder_of_a_job_stands_on_its_line(tmp_path: Path) -> None:
    run = make_submit_dir(tmp_path / "run", {}, ["align_ID1", "align_ID12"])
    (run / "flow-0.dag").write_text(
        "JOB first x/first.sub\nSCRIPT PRE align_ID1 JOB align_ID1 no/no.sub\n"
        "JOB align_ID12 00/02/a.sub\nJOB align_ID1 00/01/a.sub\nPARENT first CHILD align_ID1\n"
    )
    assert PlannedFiles(run, "first").file(".in") == run / "x/first.in"
    assert PlannedFiles(run, "align_ID1").file(".in") == run / "00/01/align_ID1.in"
    assert PlannedFiles(run, "align_ID12").file(".in") == run / "00/02/align_ID12.in"
    with pytest.raises(InputError, match="no line 'JOB align "):
        PlannedFiles(run, "align").file(".in")


@pytest.mark.parametrize("job", ["stage_in_local_tacc_0_0", "align_ID1"])
def test_a_hook_reads_what_is_the_workflows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """The DAG of 100,000 jobs has megabytes, and each of them has a PRE and a POST."""
    lists = {"stage_in_local_tacc_0_0": [move("f", "mu", "tacc")]}
    run = make_submit_dir(tmp_path / "run", lists, ["align_ID1"])
    config = tmp_path / "hooks.json"
    config.write_text(json.dumps({"broker": "http://127.0.0.1:9", "timeout_s": 1}))
    reads: Counter[str] = Counter()
    really = os.open

    def opened(path: str | Path, *how: int) -> int:
        reads[Path(path).name] += 1
        return really(path, *how)

    for hook, words in ((hookrun.pre, ["0"]), (hookrun.post, ["0", "0"])):
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", opened)
            assert hook(["--config", str(config), job, *words], run) == 0
        assert (reads.pop("flow-0.dag"), reads.pop("braindump.yml")) == (1, 1)


def test_a_directory_that_is_none_of_pegasus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected Pegasus's braindump\.yml"):
        job_files.braindump(tmp_path)
    with pytest.raises(InputError, match="found no key dag"):
        job_files.dag_file(tmp_path, {})


@settings(max_examples=30)
@given(st.dictionaries(st.text("abc_", min_size=1), st.text("xyz:/ -'", max_size=9)))
def test_braindump_values_come_back(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("dump")
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())
    (folder / "braindump.yml").write_text(text)
    assert job_files.braindump(folder) == values
    (folder / "braindump.yml").write_text(json.dumps(values))
    assert job_files.braindump(folder) == values


def _append(path: Path) -> None:
    for number in range(200):
        job_files.append_lines(path, [{"pid": os.getpid(), "n": number, "pad": "x" * 500}])


def test_lines_of_many_writers_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(_append, [path] * 4))
    assert len(path.read_text().splitlines()) == len(job_files.read_lines(path)) == 800


def test_a_json_file_is_old_or_new_and_no_draft_stays(tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    job_files.write_json(path, {"a": 1})
    job_files.write_json(path, {"a": 2})
    assert job_files.read_json(path) == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        job_files.write_json(tmp_path / "missing" / "x.json", {})


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"a": \xff}'])
def test_what_is_no_json_object_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="latin-1")
    assert job_files.read_json(path) == {}
    assert job_files.read_lines(path) == []
    assert job_files.input_sizes(path) == {}


def test_journals_survive_what_a_crash_left(tmp_path: Path) -> None:
    (tmp_path / job_files.SIZE_JOURNAL).write_text(
        '{"lfn": "a", "bytes": 1}\n{"lfn": "b", "by\n[1]\n{"lfn": "c", "bytes": -1}\n'
        '{"lfn": "a", "bytes": 2}\n'
    )
    assert job_files.known_sizes(tmp_path) == {"a": 2}
    assert job_files.warnings(tmp_path) == []


def test_the_hooks_configuration(tmp_path: Path) -> None:
    file = tmp_path / "hooks.json"
    file.write_text('{"broker": "http://127.0.0.1:8470", "timeout_s": 1, "archive": null}')
    config = hookconfig.load(file)
    assert (config.timeout_s, config.archive, config.template) == (1, None, "default")
    more = '"archive": "a.sqlite", "ca": "/ca.pem", "token_file": "~/token", "watch": "w"'
    file.write_text(f'{{"broker": "u", {more}}}')
    config = hookconfig.load(file)
    assert (config.archive, config.watch) == (str(tmp_path / "a.sqlite"), str(tmp_path / "w"))
    assert (config.ca, config.token_file) == ("/ca.pem", "~/token")
    for database in ("postgresql://adon@db/adon", "host=db user=adon dbname=adon"):
        file.write_text(json.dumps({"broker": "u", "archive": database}))
        assert hookconfig.load(file).archive == database


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected the hooks' JSON"),
        ("{}", "found no key 'broker'"),
        ('{"broker": "u", "brokr": 1}', "unknown key 'brokr'"),
        ('{"broker": "u", "timeout_s": -1}', "timeout_s: found -1"),
        ('{"broker": "u", "timeout_s": "2"}', "timeout_s: found '2'"),
        ('{"broker": "u", "archive": 3}', "archive: found 3"),
    ],
)
def test_a_bad_configuration_is_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "hooks.json").write_text(text)
    with pytest.raises(InputError) as caught:
        hookconfig.load(tmp_path / "hooks.json")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "code"), [("0", 0), ("3", 3), ("255", 255), ("-9", 1), ("-1004", 1), ("300", 1)]
)
def test_post_leaves_with_the_jobs_own_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)  # no submit directory at all: even then
    assert hookrun.post(["--config", "missing.json", "stage_in_x", "0", returned]) == code
    assert job_files.warnings(tmp_path)


@pytest.mark.parametrize("argv", [[], ["--config"], ["x", "y", "stage_in"], ["--config", "f", "j"]])
def test_pre_always_leaves_with_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert pre.main(argv) == 0


def test_jobs_that_move_no_data_import_nothing() -> None:
    before = set(sys.modules)
    path = list(sys.path)
    assert pre.main(["--config", "missing.json", "align_ID1", "0", "2"]) == 0
    assert set(sys.modules) == before and sys.path == path


THEIRS = ["-r", "0", "-l", "w.log", "-M", "w.cache.meta"]


@pytest.mark.parametrize(
    ("ours", "theirs", "retry"),
    [
        (["--retry", "2"], THEIRS, 2),  # Pegasus 5.1 tells its check no retry
        (["--retry", "2"], ["-r", "0", "-R", "2"], 2),  # 6.0 does
        (["--retry", ""], ["-r", "0", "-R", "1"], 1),  # planned before we asked for it
        ([], THEIRS, 0),
    ],
)
def test_the_retry_is_what_dagman_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: list[str], theirs: list[str], retry: int
) -> None:
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr(postjob, "run", lambda *given: seen.append(given))
    monkeypatch.setattr(os, "execv", lambda *_given: None)
    (tmp_path / "hooks.json").write_text('{"broker": "http://127.0.0.1:1"}')
    around = ["--config", str(tmp_path / "hooks.json"), "--exitcode-path", "/x", *ours, "--"]
    hookrun.post([*around, *theirs, ".//00/00/stage_in_1.out"])
    files, *rest = seen[0]
    assert isinstance(files, PlannedFiles) and files.job == "stage_in_1"
    assert rest[:2] == [retry, 0]


def test_a_check_that_cannot_be_run_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lost = ["--config", "missing", "--exitcode-path", str(tmp_path / "gone"), "--"]
    assert post.main([*lost, *THEIRS, "x.out"]) == 127
    assert "gone: No such file" in capfd.readouterr().err


def test_the_journal_names_the_job_although_the_settings_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda *_given: None)
    theirs = ["-r", "0", "-l", "w-0.exitcode.log", ".//00/00/stage_in_1.out"]
    hookrun.post(["--config", "no.json", "--exitcode-path", "/x", "--retry", "0", "--", *theirs])
    hookrun.post(["--config", "no.json", "stage_in_1", "0", "0"])
    hookrun.pre(["--config", "no.json", "stage_in_1", "0", "3"])
    lines = job_files.read_lines(tmp_path / job_files.HOOK_JOURNAL)
    assert [line["job"] for line in lines] == ["stage_in_1"] * 3
