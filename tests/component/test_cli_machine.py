"""The command line on machines that lack something: space, privilege, a broker that stays up."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from examples.testbed.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "soykb" / "workflow.py"
ADON = (sys.executable, "-c", "from adon.cli.main import main; raise SystemExit(main())")
# A person waits 10 s for a broker, and a machine with much to do may stop longer.
PATIENT = (
    sys.executable,
    "-c",
    "from adon.cli import main, options; options.TIMEOUT_S = 600.0; raise SystemExit(main.main())",
)
# One command after the other: what most of them take is to load what they need.
COMMANDS = f"""
import contextlib, io, json, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from adon.cli.main import main
from examples.demo.__main__ import build_parser
for line in sys.stdin:
    prepare, demo, words, folder = json.loads(line)
    subprocess.run(prepare, check=True)
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main(words, build_parser(words) if demo else None)
    left = [str(path) for path in Path(folder).rglob("*") if path.is_file()]
    print(json.dumps([code, out.getvalue(), said.getvalue(), left]), flush=True)
"""
TIMEOUT_S = 600.0  # nothing here takes nearly as long

pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("soykb")
    words = [sys.executable, str(EXAMPLE), "--out", str(folder), "--no-data"]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "workflow.yml"


def run(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


class Done(NamedTuple):
    """How a command ended, and the files that are in a folder then."""

    returncode: int
    stdout: str
    stderr: str
    left: list[str]


class Commands:
    """A process that runs one command after the other, started by other words."""

    def __init__(self, *started_by: str) -> None:
        self.process = subprocess.Popen(
            [*started_by, sys.executable, "-c", COMMANDS],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(
        self,
        *words: object,
        prepare: Sequence[str] = ("true",),
        demo: bool = False,
        folder: object = "/nowhere",
    ) -> Done:
        """One of them; ``prepare`` comes before it, ``demo`` says whose it is."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        print(
            json.dumps([prepare, demo, [*map(str, words)], str(folder)]),
            file=process.stdin, flush=True,
        )  # fmt: skip
        return Done(*json.loads(process.stdout.readline()))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def refusal(done: subprocess.CompletedProcess[str] | Done) -> str:
    assert done.returncode == 2, done
    assert done.stderr.startswith("adon: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("adon: ").rstrip("\n")


def config(folder: Path, **broker: str) -> Path:
    """The example's configuration with its files in ``folder``, on a port that is free now."""
    listen = f"127.0.0.1:{free_port()}"
    data = yaml.safe_load((ROOT / "examples" / "adon.yml").read_text())
    files = {key: str(folder / f"{key}.sqlite") for key in ("state", "archive")}
    data["broker"] = {"listen": listen, **files, **broker}
    file = folder / "adon.yml"
    file.write_text(yaml.safe_dump(data))
    return file


# ---- a full disk ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mounting() -> Iterator[Commands]:
    """Commands with mounts of their own, which go with them."""
    commands = Commands("unshare", "--mount", "--")
    yield commands
    commands.end()


@pytest.fixture
def on_a_full_disk(mounting: Commands, tmp_path: Path) -> Callable[..., Done]:
    """Runs a command while ``disk`` is a file system of so many pages."""

    def run_there(pages: int, *words: object, demo: bool = False) -> Done:
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={4 * pages}k", "tmpfs", str(disk)]
        return mounting.run(*words, prepare=mount, demo=demo, folder=disk)

    return run_there


@pytest.mark.root
@pytest.mark.parametrize("pages", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("site", "map", "W", "--save", "D/m.json"), "D/m.json: cannot write the mapping: FULL"),
        (("site", "map", "W", "--hints", "D/h.yml"), "D/h.yml: cannot write the workflow: FULL"),
    ],
)
def test_a_full_disk_leaves_nothing_half_made(
    workflow: Path,
    tmp_path: Path,
    on_a_full_disk: Callable[..., Done],
    pages: int,
    words: tuple[str, ...],
    said: str,
) -> None:
    disk = tmp_path / "disk"
    names = {"W": str(workflow)}
    given = [names.get(word, word.replace("D/", f"{disk}/")) for word in words]
    done = on_a_full_disk(pages, *given)
    assert refusal(done) == said.replace("D/", f"{disk}/").replace("FULL", os.strerror(28))
    assert done.left == []


@pytest.mark.root
def test_a_plan_on_a_full_disk(
    workflow: Path, tmp_path: Path, on_a_full_disk: Callable[..., Done]
) -> None:
    disk = tmp_path / "disk"
    done = on_a_full_disk(20, "plan", workflow, "--dir", disk / "s")
    said = refusal(done)
    assert said.startswith(f"submit directory {disk}/s/")
    assert said.endswith(f": cannot be written: {os.strerror(28)}")
    assert done.left == []


@pytest.mark.root
def test_an_archive_on_a_full_disk(tmp_path: Path, on_a_full_disk: Callable[..., Done]) -> None:
    disk = tmp_path / "disk"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "w.dag").touch()
    done = on_a_full_disk(2, "monitor", "run", tmp_path / "run", "--archive", disk / "a.sqlite")
    assert refusal(done) == f"archive {disk}/a.sqlite: the disk is full"


@pytest.mark.root
def test_a_demo_on_a_full_disk(tmp_path: Path, on_a_full_disk: Callable[..., Done]) -> None:
    disk = tmp_path / "disk"
    words = ("--state", disk / "s", "--report", tmp_path / "r")
    done = on_a_full_disk(4, *words, demo=True)
    assert refusal(done) == (
        f"{disk}/s: found 12.3 kB of free disk, expected at least 200 MB for a run"
    )
    assert [Path(file).name for file in done.left] == ["lock"]


@pytest.mark.root
def test_a_broker_on_a_full_disk(tmp_path: Path, on_a_full_disk: Callable[..., Done]) -> None:
    disk = tmp_path / "disk"
    file = config(tmp_path, state=str(disk / "s.sqlite"))
    done = on_a_full_disk(2, "broker", "--config", file)
    # SQLite's words depend on which of its files found no room.
    assert refusal(done) in {
        f"state file {disk}/s.sqlite: {words}"
        for words in ("database or disk is full", "disk I/O error")
    }


# ---- no privilege -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Commands]:
    """Commands without the powers of root: its capabilities are what makes it root."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    commands = Commands(*(drop if os.geteuid() == 0 else []))
    yield commands
    commands.end()


def test_places_that_may_not_be_written(
    workflow: Path, tmp_path: Path, unprivileged: Commands
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    why = "Permission denied"
    words = ("site", "map", workflow, "--save", closed / "m.json")
    assert refusal(unprivileged.run(*words)) == f"{closed}/m.json: cannot write the mapping: {why}"
    said = refusal(unprivileged.run("plan", workflow, "--dir", closed / "s"))
    assert said.startswith(f"submit directory {closed}/s/")
    assert said.endswith(f"cannot be written: {why}")
    (tmp_path / "w.dag").touch()
    words = ("monitor", "run", tmp_path, "--archive", closed / "a.sqlite")
    assert refusal(unprivileged.run(*words)) == (
        f"archive {closed}/a.sqlite: cannot be opened: Permission denied"
    )
    demo = unprivileged.run("--state", closed / "state", demo=True)
    assert refusal(demo) == f"{closed}/state: {why}"
    file = config(tmp_path, state=str(closed / "s.sqlite"))
    assert refusal(unprivileged.run("broker", "--config", file)) == (
        f"state file {closed}/s.sqlite: {closed}/s.sqlite.lock: {why}"
    )
    assert list(closed.iterdir()) == []


def test_doctor_says_what_needs_root(unprivileged: Commands) -> None:
    process = unprivileged.run("doctor", "--json")
    findings = {f["what"]: f for f in json.loads(process.stdout)["findings"]}
    network = findings["real network in namespaces"]
    assert (network["ok"], network["needed"]) == (False, False)
    assert "\n" not in network["found"]


# ---- a real broker ----------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    file = config(tmp_path)
    process = subprocess.Popen(
        [*ADON, "broker", "--config", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process, file
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=TIMEOUT_S)


def test_a_broker_from_start_to_stop(broker: tuple[subprocess.Popen[str], Path]) -> None:
    process, file = broker
    assert process.stdout is not None
    url = process.stdout.readline().split()[1].rstrip(",")
    assert process.stdout.readline() == f"broker: state {file.with_name('state.sqlite')}\n"
    assert process.stdout.readline() == f"broker: archive {file.with_name('archive.sqlite')}\n"
    assert url == "http://" + yaml.safe_load(file.read_text())["broker"]["listen"]

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return run([*PATIENT, *words], ADON_BROKER=url)

    made = ask("transit", "request", "mu", "tacc", "--template", "bulk", "--id", "a", "--json")
    assert (made.returncode, json.loads(made.stdout)["granted_bps"]) == (0, 150e6)
    assert refusal(ask("transit", "request", "mu", "mars")) == (
        "unknown site 'mars', expected one of mu, tacc, iplant, local"
    )
    assert refusal(
        ask("transit", "request", "mu", "tacc", "--min", "200 Mb/s", "--max", "1 Gb/s")
    ) == (
        "min_bps 200 Mb/s between mu and tacc, expected at most 180 Mb/s, all that can be "
        "reserved between them"
    )
    assert refusal(ask("transit", "release", "b")) == (
        "unknown transit 'b', expected the id of one of this broker's: 'adon transit list "
        "--all' has all"
    )
    assert "130 Mb/s  150 Mb/s  26.5 ms  a" in ask("topology", "show").stdout
    second = run([*ADON, "broker", "--config", str(file)])
    assert refusal(second).endswith("the port is in use; expected a free one in broker.listen")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, "")
    assert [line.split()[1:3] for line in err.splitlines()] == [
        ["INFO", "granted"], ["INFO", "refused"], ["INFO", "refused"],
    ]  # fmt: skip
    assert refusal(ask("transit", "list")) == (
        f"the broker at {url} cannot be reached: [Errno 111] Connection refused: start one with"
        " 'adon broker', or name another by --broker or ADON_BROKER"
    )


def test_output_that_nobody_reads(workflow: Path) -> None:
    """``adon … | head``: no complaint; a full disk behind ``>`` is one line."""
    words = shlex.join([*ADON, "site", "show", str(workflow), "--json"])
    done = run(["sh", "-c", f"{words} | head -n 1"])
    assert (done.stdout, done.stderr) == ("{\n", "")
    done = run(["sh", "-c", f"{words} >/dev/full"])
    assert refusal(done) == "No space left on device, expected room to write"
    done = run(["sh", "-c", f"{words} >&-"])
    assert (done.returncode, done.stderr) == (0, "")
    done = run([*ADON, "site", "show", str(workflow)], PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "\\u0393_a" in done.stdout
