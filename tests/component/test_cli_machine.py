"""The command line on machines that lack something: space, privilege, a broker that stays up."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

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
DEMO = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    "from examples.demo.__main__ import build_parser, main; "
    "raise SystemExit(main(parser=build_parser()))",
)
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


def refusal(done: subprocess.CompletedProcess[str]) -> str:
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


def on_a_full_disk(
    disk: Path, pages: int, *words: object, program: Sequence[str] = ADON
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run ``program`` while ``disk`` is a file system of that many pages; what it printed, and the
    files it left there. The mount is in a namespace of its own and goes with it."""
    disk.mkdir()
    listing = disk.with_name("left")
    command = shlex.join([*program, *map(str, words)])
    done = run(
        [
            *("unshare", "--mount", "sh", "-c"),
            f"mount -t tmpfs -o size={4 * pages}k tmpfs {disk} && {command}; code=$?; "
            f"find {disk} -type f >{listing}; exit $code",
        ]
    )
    return done, listing.read_text().split()


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
    workflow: Path, tmp_path: Path, pages: int, words: tuple[str, ...], said: str
) -> None:
    disk = tmp_path / "disk"
    names = {"W": str(workflow)}
    given = [names.get(word, word.replace("D/", f"{disk}/")) for word in words]
    done, left = on_a_full_disk(disk, pages, *given)
    assert refusal(done) == said.replace("D/", f"{disk}/").replace("FULL", os.strerror(28))
    assert left == []


@pytest.mark.root
def test_a_plan_on_a_full_disk(workflow: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    done, left = on_a_full_disk(disk, 20, "plan", workflow, "--dir", disk / "s")
    said = refusal(done)
    assert said.startswith(f"submit directory {disk}/s/")
    assert said.endswith(f": cannot be written: {os.strerror(28)}")
    assert left == []


@pytest.mark.root
def test_an_archive_on_a_full_disk(workflow: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "w.dag").touch()
    done, _ = on_a_full_disk(
        disk, 2, "monitor", "run", tmp_path / "run", "--archive", disk / "a.sqlite"
    )
    assert refusal(done) == f"archive {disk}/a.sqlite: the disk is full"


@pytest.mark.root
def test_a_demo_on_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    words = ("--state", disk / "s", "--report", tmp_path / "r")
    done, left = on_a_full_disk(disk, 4, *words, program=DEMO)
    assert refusal(done) == (
        f"{disk}/s: found 12.3 kB of free disk, expected at least 200 MB for a run"
    )
    assert [Path(file).name for file in left] == ["lock"]


@pytest.mark.root
def test_a_broker_on_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    file = config(tmp_path, state=str(disk / "s.sqlite"))
    done, _ = on_a_full_disk(disk, 2, "broker", "--config", file)
    # SQLite's words depend on which of its files found no room.
    assert refusal(done) in {
        f"state file {disk}/s.sqlite: {words}"
        for words in ("database or disk is full", "disk I/O error")
    }


# ---- no privilege -----------------------------------------------------------------------------


def unprivileged(*words: object, program: Sequence[str] = ADON) -> list[str]:
    """``program`` without the powers of root: its capabilities are what makes it root."""
    command = [*program, *map(str, words)]
    if os.geteuid() != 0:
        return command
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    return [*drop, *command]


def test_places_that_may_not_be_written(workflow: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    why = "Permission denied"
    words = ("site", "map", workflow, "--save", closed / "m.json")
    assert refusal(run(unprivileged(*words))) == (
        f"{closed}/m.json: cannot write the mapping: {why}"
    )
    said = refusal(run(unprivileged("plan", workflow, "--dir", closed / "s")))
    assert said.startswith(f"submit directory {closed}/s/")
    assert said.endswith(f"cannot be written: {why}")
    (tmp_path / "w.dag").touch()
    words = ("monitor", "run", tmp_path, "--archive", closed / "a.sqlite")
    assert refusal(run(unprivileged(*words))) == (
        f"archive {closed}/a.sqlite: cannot be opened: Permission denied"
    )
    assert refusal(run(unprivileged("--state", closed / "state", program=DEMO))) == (
        f"{closed}/state: {why}"
    )
    file = config(tmp_path, state=str(closed / "s.sqlite"))
    assert refusal(run(unprivileged("broker", "--config", file))) == (
        f"state file {closed}/s.sqlite: {closed}/s.sqlite.lock: {why}"
    )
    assert list(closed.iterdir()) == []


def test_doctor_says_what_needs_root() -> None:
    done = run(unprivileged("doctor", "--json"))
    found = {f["what"]: f for f in json.loads(done.stdout)["findings"]}
    network = found["real network in namespaces"]
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
        "unknown transit 'b', expected the id of one that was asked for here: 'adon transit list "
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
    words = shlex.join([*ADON, "site", "explain", str(workflow), "--json"])
    done = run(["sh", "-c", f"{words} | head -n 1"])
    assert (done.stdout, done.stderr) == ("[\n", "")
    done = run(["sh", "-c", f"{words} >/dev/full"])
    assert refusal(done) == "No space left on device, expected room to write"
    done = run(["sh", "-c", f"{words} >&-"])
    assert (done.returncode, done.stderr) == (0, "")
    done = run([*ADON, "site", "show", str(workflow)], PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "\\u0393_a" in done.stdout
