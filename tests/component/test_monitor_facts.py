"""What the jobs of a real DAGMan on a real pool did, as a real broker tells it: Figures 13 to 15,
the remote trigger, and people who are told by a real web hook."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from http_load import broker_process
from network_world import star
from waiting import until

from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive.archive import Archive

pytestmark = pytest.mark.component

POOL = {"mu": SiteSpec(workers=2)}  # of the fixture `pool`
WAIT_S = 300.0
ROOT = Path(__file__).resolve().parents[2]
UUID = "0a1b2c3d-0000-4000-8000-00000000f00d"
BIG = 3_000_000

SUB = """\
executable = {folder}/{name}.sh
universe = vanilla
requirements = PegasusSite == "mu"
output = {folder}/{name}.out
error = {folder}/{name}.err
log = {folder}/wf-0.log
request_memory = 32
request_disk = 20000
+pegasus_site = "mu"
+pegasus_wf_xformation = "test::{name}:1.0"
+pegasus_wf_dax_job_id = "ID_{name}"
+pegasus_job_class = 1
{more}
queue
"""
MOVES = """\
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
transfer_input_files = {folder}/big
transfer_output_files = back
"""
STAYS = "should_transfer_files = NO\n"
SCRIPTS = {
    "move": "cp big back; cat big >> back",
    "fail": 'echo "no such reads: $(date +%s)" >&2; exit 3',
    "never": "true",
}


PLUGIN = """\
#!{python}
import os, re, sys, time
if "-classad" in sys.argv:
    print('MultipleFileSupport = true')
    print('PluginType = "FileTransfer"')
    print('SupportedMethods = "toy"')
    sys.exit(0)
words = dict(zip(sys.argv, sys.argv[1:]))
upload = "-upload" in sys.argv
with open(words["-infile"]) as asked, open(words["-outfile"], "w") as told:
    for ad in re.findall(r"\\[(.*?)\\]", asked.read(), re.S):
        url = re.search(r'Url\\s*=\\s*"(.*?)"', ad)[1]
        name = re.search(r'LocalFileName\\s*=\\s*"(.*?)"', ad)[1]
        if not upload:
            with open(name, "wb") as file:
                file.write(b"x" * 2_000_000)
        time.sleep(1.2)
        size = os.path.getsize(name)
        told.write('[ TransferUrl = "%s"; TransferFileName = "%s"; TransferSuccess = true; '
                   'TransferProtocol = "toy"; TransferType = "%s"; TransferFileBytes = %d; '
                   'TransferTotalBytes = %d ]\\n' % (
                   url, os.path.basename(name), "upload" if upload else "download", size, size))
"""
FETCH = """\
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
transfer_plugins = toy={folder}/plugin.py
transfer_input_files = toy://store.example/big
transfer_output_files = back
transfer_output_remaps = "back=toy://store.example/back"
"""


class Hook(http.server.ThreadingHTTPServer):
    """A web hook: a real HTTP server that refuses the first of everything. A notice that does not
    get its answer in time sends the same again, so that is no news."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class Answering(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        self.server.got.append((key, body))
        again = [k for k, _ in self.server.got].count(key) > 1
        self.send_response(204 if again else 503)
        self.send_header("Retry-After", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def listening() -> Iterator[Hook]:
    with Hook() as hook:
        thread = threading.Thread(target=hook.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            hook.shutdown()
            thread.join()


def plan(folder: Path) -> Path:
    """One job that HTCondor moves files for, one that fails twice, one whose PRE fails."""
    folder.mkdir(parents=True)
    (folder / "big").write_bytes(b"x" * BIG)
    for name, body in SCRIPTS.items():
        script = folder / f"{name}.sh"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        more = MOVES.format(folder=folder) if name == "move" else STAYS
        (folder / f"{name}.sub").write_text(SUB.format(folder=folder, name=name, more=more))
    (folder / "wf-0.dag").write_text(
        "".join(f"JOB {name} {name}.sub\n" for name in SCRIPTS)
        + "RETRY fail 1\nSCRIPT POST fail /bin/sh -c 'exit $RETURN'\n"
        + "SCRIPT PRE never /bin/false\n"
    )
    (folder / "braindump.yml").write_text(json.dumps({
        "wf_uuid": UUID, "root_wf_uuid": UUID, "dag": "wf-0.dag", "condor_log": "wf-0.log",
        "dax_label": "facts", "user": "ada",
    }))  # fmt: skip
    (folder / "adon-placements.json").write_text(json.dumps({
        "at": 1.0, "policy": "chains", "placements": [
            {"job": "ID_move", "site": "mu", "seconds": 7.5, "reason": "least time of 1 site"}]
    }))  # fmt: skip
    return folder


def ask(url: str, verb: str = "GET") -> Any:
    request = urllib.request.Request(url, method=verb)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def adon(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "adon", *words],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_workflow_from_its_files_to_pages_and_people(pool: Pool, tmp_path: Path) -> None:
    folder = tmp_path / "run0001"
    mail_file = tmp_path / "mail"
    mail = [
        sys.executable,
        "-c",
        f"import sys; open({str(mail_file)!r}, 'a').write(sys.stdin.read())",
    ]
    with listening() as hook:
        config = {
            "topology": star("mu", "tacc"),
            "controller": {"driver": "simulated"},
            "monitoring": {
                "workflows": [str(folder)],
                "notices": [
                    {"on": ["failed"], "users": ["ada"], "webhook": hook.url},
                    {"on": ["failed"], "command": mail},
                    {"on": ["finished"], "users": ["bob"], "webhook": hook.url},
                ],
            },
        }
        (tmp_path / "broker").mkdir()
        with broker_process(tmp_path / "broker", config) as url:
            plan(folder)
            pool.run(["condor_submit_dag", "wf-0.dag"], cwd=folder)
            workflow_url = f"{url}/v1/workflows/{UUID}"
            until(lambda: [w for w in ask(f"{url}/v1/workflows") if w["state"] == "failed"],
                  "the workflow's end")  # fmt: skip
            check_status(ask(f"{url}/v1/workflows?user=ada&state=failed"), ask(workflow_url))
            check_jobs(ask(f"{workflow_url}/jobs"))
            check_transfers(ask(f"{workflow_url}/transfers"))
            check_analysis(ask(f"{workflow_url}/analysis"))

            measured = ask(f"{workflow_url}/refresh", "POST")
            assert measured["refreshed"] is True
            assert measured["workflow"]["state"] == "failed"

            until(lambda: len(hook.got) > 1, "the web hook")
            until(lambda: mail_file.exists() and mail_file.read_text(), "the mail command")
            text = adon("monitor", "show", "facts", "--broker", url)
            assert re.search(r"^Failed: fail at mu on \S+: exit code 3, 2 attempts$", text, re.M)
            assert "| no such reads: " in text
            assert UUID[:8] in adon("monitor", "list", "--user", "ada", "--broker", url)
            assert "FAIL" in adon("monitor", "status", UUID[:8], "--now", "--broker", url)
        check_told(hook, mail_file.read_text())
        told_so_far = len(hook.got)
        # Another broker on the same archive tells nobody again.
        with broker_process(tmp_path / "broker", config) as url:
            assert ask(f"{url}/v1/workflows/{UUID}")["state"] == "failed"
            until(lambda: ask(f"{url}/v1/workflows/{UUID}/refresh", "POST")["refreshed"],
                  "the follower")  # fmt: skip
        assert len(hook.got) == told_so_far
        assert mail_file.read_text().count("Workflow facts of ada failed") == 1


def check_status(workflows: list[dict[str, Any]], workflow: dict[str, Any]) -> None:
    (listed,) = workflows
    assert (listed["id"], listed["name"], listed["user"]) == (UUID, "facts", "ada")
    assert listed["status"]["done"] == 1 and listed["status"]["fail"] == 2
    assert listed["status"]["total"] == 3
    assert [c["at"] for c in workflow["history"]] == sorted(c["at"] for c in workflow["history"])
    assert workflow["history"][-1]["state"] == "failed"


def check_jobs(jobs: list[dict[str, Any]]) -> None:
    by = {(job["job"], job["attempt"]): job for job in jobs}
    assert set(by) == {("move", 0), ("fail", 0), ("fail", 1), ("never", 0)}
    moved = by["move", 0]
    assert (moved["outcome"], moved["site"], moved["kind"]) == ("done", "mu", "compute")
    assert moved["submitted_at"] <= moved["started_at"] <= moved["ended_at"]
    assert moved["placement"] == {"site": "mu", "seconds": 7.5, "reason": "least time of 1 site"}
    for number in (0, 1):
        failed = by["fail", number]
        assert (failed["outcome"], failed["exitcode"]) == ("failed", 3)
        assert failed["retry"] == number
    assert by["fail", 1]["stderr"].startswith("no such reads: ")
    assert by["never", 0]["started_at"] is None
    assert "PRE" in by["never", 0]["reason"]


def check_transfers(transfers: list[dict[str, Any]]) -> None:
    by = {moved["direction"]: moved for moved in transfers}
    assert len(transfers) == 2
    assert (by["in"]["src"], by["in"]["dst"]) == ("local", "mu")
    assert BIG <= by["in"]["bytes"] < BIG + 100_000
    assert 2 * BIG <= by["out"]["bytes"] < 2 * BIG + 100_000
    for moved in transfers:
        assert (moved["tool"], moved["job"], moved["path"]) == ("htcondor", "move", None)
        assert moved["goodput_bps"] is None or moved["goodput_bps"] > 1e5


def check_analysis(analysis: dict[str, Any]) -> None:
    assert (analysis["attempts"], analysis["retries"]) == (4, 1)
    assert analysis["outcomes"] == {"done": 1, "failed": 3}
    (row,) = [r for r in analysis["runtimes"] if r["transformation"] == "test::move:1.0"]
    assert (row["site"], row["count"]) == ("mu", 1)
    assert {t["tool"] for t in analysis["transfers"]} == {"htcondor"}
    failed = {f["job"]: f for f in analysis["failures"]}
    assert failed["fail"]["attempts"] == 2 and not failed["fail"]["retried"]
    assert "PRE" in failed["never"]["reason"]


def check_told(hook: Hook, mail: str) -> None:
    # One refused, one taken; none of the workflow's end for others.
    (first, taken), *others = hook.got
    assert first and others and all(other == (first, taken) for other in others)
    assert taken["kind"] == "failed"
    assert taken["details"]["workflow"] == UUID
    assert {f["job"] for f in taken["details"]["failures"]} == {"fail", "never"}
    assert "    no such reads: " in taken["text"]
    assert mail.startswith("Workflow facts of ada failed")


def test_what_a_transfer_plugin_moved_is_known_from_htcondors_history(
    pool: Pool, tmp_path: Path
) -> None:
    folder = tmp_path / "run0001"
    folder.mkdir()
    for name, text in {
        "plugin.py": PLUGIN.format(python=sys.executable),
        "fetch.sh": "#!/bin/sh\ncp big back; cat big >> back\n",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    more = FETCH.format(folder=folder)
    (folder / "fetch.sub").write_text(SUB.format(folder=folder, name="fetch", more=more))
    (folder / "wf-0.dag").write_text("JOB fetch fetch.sub\n")
    dump = {"wf_uuid": UUID, "dag": "wf-0.dag", "condor_log": "wf-0.log", "user": "ada"}
    (folder / "braindump.yml").write_text(json.dumps(dump))
    pool.run(["condor_submit_dag", "wf-0.dag"], cwd=folder)
    archive = tmp_path / "archive.sqlite"
    # Where the follower runs, HTCondor's own programs are on PATH.
    words = [sys.executable, "-m", "adon", "monitor", "run", str(folder), "--archive", str(archive)]
    pool.run(words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, timeout_s=WAIT_S)
    with Archive(archive) as opened:
        moved = {m.details["direction"]: m for m in opened.query("job_transfer")}
        assert len(opened.query("job_transfer")) == 2, moved
    brought, taken = moved["in"], moved["out"]
    assert (brought.subject, brought.value) == ("store.example>mu", 2_000_000)
    assert (taken.subject, taken.value) == ("mu>store.example", 4_000_000)
    for transfer in moved.values():
        assert (transfer.source, transfer.details["tool"]) == ("transfer history", "htcondor (toy)")
        assert (transfer.details["files"], transfer.details["retries"]) == (1, 0)
        assert 1.0 <= transfer.details["seconds"] < WAIT_S  # it slept for 1.2 s at least
