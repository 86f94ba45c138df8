"""HTCondor's own file transfers, in a real pool with a real broker: a path before the input, given
back after it, whatever is killed meanwhile; nobody's submit file knows of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from broker_service import BrokerService
from file_server import FileServer
from network_world import star
from waiting import until

from adon.cli.main import main
from adon.machine.packages import ensure
from condor_plugins.jobs.jobad import parse
from condor_plugins.transfers import setup
from examples.testbed import procs
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from network_provisioner.base.model import ENDED, Transit, TransitRequest, TransitState
from network_provisioner.templates.data import BUILT_IN

pytestmark = pytest.mark.component

# A starter that does not hear of its job's end keeps its slot for so many seconds.
DEAF = "KILLING_TIMEOUT = 3\n"
SITES = {name: SiteSpec(1, settings=DEAF) for name in ("mu", "tacc")}
NETWORK = star("mu", "tacc", "local")
QUICK = 30 * 2**20  # bytes that are sent in a moment
SMALL = 12 * 2**20
TINY = 2**20
LONG_S = 300.0  # nothing here takes nearly as long
# A hook waits so long for a broker that does not answer, and for a path: the shadow lets it live
# for 120 s.
PATIENT = {"timeout_s": 60.0, "patience_s": 80.0}
# The hook, for which no server is too slow to say how large a file is: it may take ten seconds, but
# for the one that never says it.
SIZES_HOOK = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from condor_plugins.transfers import shadow_prepare
from condor_plugins.urls import sizes
facts = sizes.facts
def patient(ad, urls, config):
    return facts(ad, urls, config, 1.0 if any(u.endswith("/hangs") for u in urls) else 10.0)
sizes.facts = patient
sys.exit(shadow_prepare.main(sys.argv[1:]))
"""
# A transfer plug-in of the job's own.
PLUGIN = r"""#!/bin/sh
if [ "$1" = -classad ]; then
    printf '%s\n' 'MultipleFileSupport = true' 'PluginType = "FileTransfer"' \
        'PluginVersion = "1"' 'SupportedMethods = "{method}"'
    exit 0
fi
while [ $# -gt 0 ]; do
    case $1 in -infile) wanted=$2 ;; -outfile) results=$2 ;; esac
    shift
done
name=$(sed -n 's/.*LocalFileName *= *"\([^"]*\)".*/\1/p' "$wanted")
"""
# By which one file comes: it says that it was called, and ends once that is taken back, or all are
# let go, or its starter has ended.
HELD_FILE = (
    PLUGIN.replace("{method}", "held")
    + r"""sign={folder}/held.$$
touch "$sign"
until [ ! -e "$sign" ] || [ -e {folder}/all ] || ! kill -0 $PPID 2>/dev/null; do sleep 0.1; done
: > "$name"
printf '[ TransferSuccess = true; TransferUrl = "held://x/y"; TransferFileName = "%s"; ]\n' \
    "$name" > "$results"
"""
)
# By which osdf:// comes: it tells what Pelican's client does of a cache that was slow to begin.
PELICAN = (
    PLUGIN.replace("{method}", "osdf")
    + r"""head -c 1000 /dev/zero > "$name"
now=$(date +%s)
printf '%s' '[ TransferSuccess = true; TransferUrl = "osdf:///ospool/a";' \
    'TransferType = "download"; TransferProtocol = "osdf";' \
    'TransferFileBytes = 1000; TransferTotalBytes = 1000;' \
    "TransferFileName = \"$name\"; TransferStartTime = $((now - 40)); TransferEndTime = $now;" \
    'DeveloperData = [ PelicanClientVersion = "7.20.0"; Attempts = 1; TimeToFirstByte0 = 30.25;' \
    'TransferTime0 = 39.5; DataAge0 = 5.5; Endpoint0 = "{cache}" ] ]' > "$results"
"""
)


class Service(BrokerService):
    """And the file that configures the hooks which ask it."""

    hooks: Path

    def of_job(self, cluster: str) -> list[Transit]:
        return [t for t in self.client.list() if f"-{cluster}.0-" in t.id]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # A path for every transfer, however long a busy machine takes to set one up.
    patient = {"default": {**BUILT_IN["default"], "patience": "1 h", "break_even": 0}}
    with Service(tmp_path_factory.mktemp("broker"), NETWORK, patient) as service:
        yield service


@pytest.fixture(scope="module")
def web() -> Iterator[FileServer]:
    """Files at mu; the machine has another name, which is of no site."""
    data = b"x" * SMALL
    with FileServer({"/data": data, "HEAD /hangs": None, "/hangs": data}) as web:
        web.files["/elsewhere"] = web.url.replace("127.0.0.1", "localhost") + "/data"
        web.files["/ospool/a"] = web.url + "/cache/a"
        web.files["/cache/a"] = b"x" * 1000
        yield web


@pytest.fixture(scope="module")
def pool(
    service: Service, web: FileServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    """A pool whose administrator ran ``adon install condor``."""
    place = tmp_path_factory.mktemp("etc") / "config.d"
    place.mkdir()
    service.hooks = place.with_name("adon-transfers.json")
    for folder in (place, *place.parents[:2]):
        folder.chmod(0o755)
    words = ["--config-dir", str(place), "--site", "local", "--broker", service.url, "--yes"]
    hook = place.with_name("shadow_prepare.py")
    hook.write_text(SIZES_HOOK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "_PROGRAM", hook)
        assert main(["install", "condor", *words]) == 0
    configure(service, sources={f"{web.url}/": "mu"}, redirector=web.url, **PATIENT)
    condor = ensure("condor", progress=print)
    # The event log is rotated every few jobs.
    settings = (
        f"LOCAL_CONFIG_DIR = {place}\nPERIODIC_EXPR_INTERVAL = 2\nEVENT_LOG_MAX_SIZE = 30000\n"
    )
    run_dir = tmp_path_factory.mktemp("pool")
    with Pool(run_dir, condor, SITES, hub_settings=settings) as pool:
        until(lambda: "watching" in watcher_log(pool), "the watcher to start")
        yield pool


def configure(service: Service, **changed: Any) -> None:
    """Change the hooks' configuration for those that begin from now on."""
    data = json.loads(service.hooks.read_text()) | changed
    draft = service.hooks.with_suffix(".draft")
    draft.write_text(json.dumps(data))
    draft.chmod(0o644)
    draft.replace(service.hooks)


@pytest.fixture
def jobs(pool: Pool, tmp_path: Path) -> Iterator[Path]:
    """Where jobs are submitted from; none is left in the queue."""
    tmp_path.chmod(0o777)
    yield tmp_path
    if queue(pool, "JobStatus =!= 3"):  # being removed already
        pool.run(["condor_rm", "-all"])
    (tmp_path / "all").touch()
    until(lambda: not queue(pool), "an empty queue")


def watcher_log(pool: Pool) -> str:
    log = pool.run_dir / "hub/log/AdonTransfersLog"
    return log.read_text() if log.exists() else ""


def queue(pool: Pool, constraint: str = "true") -> list[str]:
    return pool.run(["condor_q", "-constraint", constraint, "-af", "ClusterId"]).split()


def submit(pool: Pool, folder: Path, size: int, *more: str, held: bool = False) -> str:
    """A job at tacc with an input of so many bytes, none for 0; it sends back what it got. A
    ``held`` one has another input, see HELD_FILE."""
    lines = [
        "executable = /bin/true", "transfer_executable = false", "should_transfer_files = YES",
        'requirements = PegasusSite == "tacc"', "log = j.log",
    ]  # fmt: skip
    if size:
        with (folder / "in.dat").open("wb") as file:
            file.truncate(size)
        (folder / "in.dat").chmod(0o644)
        names = "in.dat, held://x/y" if held else "in.dat"
        lines += [f"transfer_input_files = {names}", "transfer_output_files = in.dat"]
    (folder / "j.sub").write_text("\n".join([*lines, *more, "queue\n"]))
    return pool.run(["condor_submit", "-terse", "j.sub"], cwd=folder).split(".")[0]


def job_over(pool: Pool, folder: Path) -> None:
    pool.run(["condor_wait", "j.log"], cwd=folder, timeout_s=LONG_S)


def happened(folder: Path, text: str) -> list[str]:
    log = folder / "j.log"
    return [line for line in log.read_text().splitlines() if text in line] if log.exists() else []


STARTED = "Started transferring input"


def over(service: Service, transit_id: str) -> bool:
    return service.client.get(transit_id).state in ENDED


def given_back(service: Service, transit_id: str) -> Transit:
    """By somebody: its lease, of a minute and more, would end it in another state."""
    until(lambda: over(service, transit_id), f"{transit_id} to be given back")
    transit = service.client.get(transit_id)
    assert transit.state is not TransitState.EXPIRED
    return transit


def measured(service: Service, transit_id: str) -> Transit:
    """When it is known how much was moved: that may be told later than that it is over."""
    until(lambda: service.client.get(transit_id).usage.bytes > 0, "how much was moved")
    return service.client.get(transit_id)


def all_back(service: Service, cluster: str) -> list[Transit]:
    """What a job asked for, once it has ended."""
    until(lambda: all(t.state in ENDED for t in service.of_job(cluster)), "all back")
    return service.of_job(cluster)


@contextmanager
def sending(pool: Pool, service: Service, folder: Path) -> Iterator[tuple[str, Transit]]:
    """A job whose input is being sent until the block ends, and its path. Runs that come later have
    their input held, too."""
    plugin = folder / "held.sh"
    plugin.write_text(HELD_FILE.replace("{folder}", str(folder)))
    plugin.chmod(0o755)
    cluster = submit(pool, folder, QUICK, "transfer_plugins = held=held.sh", held=True)
    until(lambda: [*folder.glob("held.[0-9]*")], "input to be sent")
    (path,) = service.of_job(cluster)
    assert path.state is TransitState.INSTALLED
    try:
        yield cluster, path
    finally:
        for sign in folder.glob("held.[0-9]*"):
            sign.unlink()


def daemons(pool: Pool, *words: str, but: str = "\n") -> list[int]:
    """Processes of the pool whose command line has all these words, and not another."""
    pids = []
    for process in procs.marked(pool.run_dir):
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words) and but not in line:
            pids.append(process.pid)
    return pids


def hooks(pool: Pool, shell: bool) -> list[int]:
    """Hooks that run: the shell in front of them, or Python."""
    if shell:
        return daemons(pool, "exit 0", "shadow_prepare.py")
    return daemons(pool, "shadow_prepare.py", but="exit 0")


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_input_has_a_path_before_it_is_sent_and_gives_it_back(
    pool: Pool, service: Service, jobs: Path
) -> None:
    cluster = submit(pool, jobs, QUICK, "accounting_group = soy", "batch_name = montage")
    job_over(pool, jobs)
    name = next(t.id for t in all_back(service, cluster) if ":in:1" in t.id)
    path = measured(service, name)
    assert (path.request.src, path.request.dst, path.request.size_bytes, path.usage.bytes) == (
        "local",
        "tacc",
        QUICK,
        QUICK,
    )
    assert path.state is TransitState.RELEASED
    assert path.usage.outcome == "success"
    assert path.grant.path == ["local", "s1", "tacc"]
    assert (path.request.user, path.request.project, path.request.application) == (
        pool.user.name,
        "soy",
        "montage",
    )
    assert path.request.job == f"{cluster}.0"
    started = happened(jobs, STARTED)[0].split()
    at = time.mktime(time.strptime(" ".join(started[2:4]).partition(".")[0], "%Y-%m-%d %H:%M:%S"))
    assert path.grant.installed_at < at + 1  # the log's second had begun by then


def test_whose_packets_are_whose_is_seen_at_the_shadow(
    pool: Pool, service: Service, jobs: Path
) -> None:
    with sending(pool, service, jobs) as (_, path):

        def are_open() -> bool:
            flows = service.client.get(path.id).request.flows
            open_now = {
                (connection.laddr.port, connection.raddr.port)
                for connection in psutil.net_connections("tcp")
                if connection.status == psutil.CONN_ESTABLISHED
            }
            # A shadow has other connections, too, for a moment.
            ports = {(flow.src_ports[0], flow.dst_ports[0]) for flow in flows}
            return bool(ports) and ports <= open_now

        until(are_open, "its ports, which are those of open connections")
    job_over(pool, jobs)


def test_output_has_a_path_while_it_is_sent(pool: Pool, service: Service, jobs: Path) -> None:
    cluster = submit(pool, jobs, 10 * QUICK)
    job_over(pool, jobs)
    name = next(t.id for t in all_back(service, cluster) if ":out:1" in t.id)
    path = measured(service, name)
    assert (path.request.src, path.request.dst, path.usage.bytes) == ("tacc", "local", 10 * QUICK)
    assert path.usage.outcome == "success"
    assert path.usage.goodput_bps > 0


def test_quick_output_has_its_path_before_it_is_sent(
    pool: Pool, service: Service, jobs: Path
) -> None:
    """The like of it ran before. Each runs until it is told to end."""
    until_told = f"'until test -e {jobs}/go; do sleep 0.1; done'"
    words = ("executable = /bin/sh", f'arguments = "-c {until_told}"')
    (jobs / "go").touch()

    def told_of(job: str) -> bool:
        return any(":out:1" in t.id for t in service.of_job(job))

    for _ in range(3):
        before = submit(pool, jobs, TINY, *words)
        job_over(pool, jobs)
        until(partial(told_of, before), "what was sent")
    (jobs / "go").unlink()
    cluster = submit(pool, jobs, TINY, *words)
    until(partial(told_of, cluster), "the output's path")
    (jobs / "go").touch()
    job_over(pool, jobs)
    path = next(t for t in all_back(service, cluster) if ":out:1" in t.id)
    assert (path.request.src, path.request.dst, path.request.size_bytes) == ("tacc", "local", TINY)
    assert path.grant.path == ["tacc", "s1", "local"]
    until(lambda: service.client.get(path.id).usage.bytes == TINY, "how much was sent")


def test_jobs_without_files_and_pegasus_own_ask_for_nothing(
    pool: Pool, service: Service, jobs: Path
) -> None:
    # Another program: of this one's like it is known that they send files.
    empty = submit(pool, jobs, 0, "executable = /usr/bin/true")
    job_over(pool, jobs)
    (jobs / "j.log").unlink()
    pegasus = submit(pool, jobs, QUICK, '+pegasus_wf_xformation = "pegasus::transfer"')
    job_over(pool, jobs)
    assert service.of_job(empty) == service.of_job(pegasus) == []


def fetched(service: Service, cluster: str) -> Transit:
    """The path of what a job fetched by URL, once it is known how much that was."""
    all_back(service, cluster)
    name = f"-{cluster}.0-"
    (path,) = (t for t in service.client.list() if name in t.id and ":in@mu:1" in t.id)
    return measured(service, path.id)


def test_what_the_slot_fetches_by_url_has_a_path_of_its_own(
    pool: Pool, service: Service, web: FileServer, jobs: Path
) -> None:
    there = f"in.dat, {web.url}/data, {web.url.replace('127.0.0.1', 'localhost')}/data?again"
    program = ("executable = /bin/sh", "arguments = \"-c 'cat $_CONDOR_JOB_AD'\"", "output = out")
    cluster = submit(pool, jobs, QUICK, *program, f"transfer_input_files = {there}")
    job_over(pool, jobs)
    path = fetched(service, cluster)
    assert (path.request.src, path.request.dst, path.grant.path) == (
        "mu",
        "tacc",
        ["mu", "s1", "tacc"],
    )
    assert (path.request.size_bytes, path.usage.bytes, path.usage.outcome) == (
        SMALL,
        SMALL,
        "success",
    )
    assert path.usage.goodput_bps > 0
    own = next(t for t in all_back(service, cluster) if ":in:1" in t.id)
    assert (own.request.src, own.request.size_bytes, own.state) == (
        "local",
        QUICK,
        TransitState.RELEASED,
    )
    # What plug-ins find at the slot, and what the user sees of the server that is of no site.
    said = parse((jobs / "out").read_text().splitlines())
    assert 0 < float(said["AdonRateBps"]) <= path.request.max_bps
    assert "no site is known of localhost" in str(said["AdonInReason"])


@pytest.mark.parametrize("name", ["elsewhere", "hangs"])
def test_a_url_without_a_size_is_fetched_all_the_same(
    pool: Pool, service: Service, web: FileServer, jobs: Path, name: str
) -> None:
    """The server sends us on to what only this machine may ask for; or never answers."""
    web.asked.clear()
    cluster = submit(pool, jobs, 0, f"transfer_input_files = {web.url}/{name}")
    job_over(pool, jobs)
    path = fetched(service, cluster)
    assert (path.request.size_bytes, path.usage.bytes, path.usage.outcome) == (
        None,
        SMALL,
        "success",
    )
    assert "HEAD /data" not in web.asked


def test_the_cache_that_was_slow_is_named(
    pool: Pool, service: Service, web: FileServer, jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = jobs / "osdf.sh"
    plugin.write_text(PELICAN.replace("{cache}", web.url.partition("//")[2]))
    plugin.chmod(0o755)
    words = ("transfer_plugins = osdf=osdf.sh", "transfer_input_files = osdf:///ospool/a")
    cluster = submit(pool, jobs, 0, *words)
    job_over(pool, jobs)
    path = fetched(service, cluster)
    assert (path.request.src, path.request.size_bytes, path.usage.bytes, path.usage.seconds) == (
        "mu",
        1000,
        1000,
        40.0,
    )
    assert path.usage.outcome == "success"
    assert main(["transit", "explain", path.id, "--broker", service.url]) == 0
    assert "slow: cache 127.0.0.1, 30.2 of 40 s until it sent anything" in capsys.readouterr().out


@pytest.mark.parametrize(
    "victim", ["condor_shadow", pytest.param("condor_starter", marks=pytest.mark.long)]
)
def test_a_killed_end_of_a_transfer_gives_its_path_back(
    pool: Pool, service: Service, jobs: Path, victim: str
) -> None:
    with sending(pool, service, jobs) as (cluster, path):
        kill(daemons(pool, victim))
    assert given_back(service, path.id).usage.outcome != "success"
    # It starts again under an id of its own.
    again = path.id.removesuffix("1") + "2"
    until(lambda: again in {t.id for t in service.of_job(cluster)}, "the next run's path")
    pool.run(["condor_rm", cluster])
    given_back(service, again)


@pytest.mark.long
@pytest.mark.parametrize("command", ["condor_rm", "condor_hold", "condor_vacate_job -fast"])
def test_a_job_that_is_stopped_gives_its_path_back(
    pool: Pool, service: Service, jobs: Path, command: str
) -> None:
    with sending(pool, service, jobs) as (cluster, path):
        pool.run([*command.split(), cluster])
        assert given_back(service, path.id).usage.outcome != "success"


def test_a_killed_watcher_is_started_again_and_goes_on(
    pool: Pool, service: Service, jobs: Path
) -> None:
    with sending(pool, service, jobs) as (cluster, path):
        kill(daemons(pool, "condor_plugins.transfers.watch"))
        pool.run(["condor_rm", cluster])
    until(lambda: over(service, path.id), "the path to be given back")


def test_without_a_broker_jobs_run_and_it_learns_why_later(
    pool: Pool, service: Service, jobs: Path
) -> None:
    service.down()
    try:
        cluster = submit(pool, jobs, QUICK)
        job_over(pool, jobs)
    finally:
        service.up()

    def told_of() -> list[Transit]:
        return [t for t in service.of_job(cluster) if ":in:1" in t.id]

    until(told_of, "the broker to be told")
    (transit,) = told_of()
    assert transit.state is TransitState.BEST_EFFORT
    assert "cannot be reached" in transit.reason
    assert transit.request.size_bytes == QUICK


@pytest.fixture
def silent(service: Service) -> Iterator[None]:
    """In the broker's place somebody who accepts and says nothing."""
    service.down()
    with socket.create_server(("127.0.0.1", service.port)):
        yield
    configure(service, **PATIENT)
    service.up()


@pytest.mark.long
@pytest.mark.parametrize("shell", [True, False])
def test_a_killed_hook_costs_its_job_the_path_and_nothing_else(
    pool: Pool, service: Service, silent: None, jobs: Path, shell: bool
) -> None:
    """Killed is the shell in front of it, after which HTCondor holds the job, or Python alone."""
    submit(pool, jobs, QUICK)
    until(lambda: hooks(pool, shell), "the hook to wait for the broker")
    configure(service, timeout_s=2.0)  # of those that come after it
    kill(hooks(pool, shell))
    job_over(pool, jobs)
    assert happened(jobs, "Job terminated")
    assert bool(happened(jobs, "Job was released")) == shell


def test_a_queued_job_that_is_removed_leaves_the_queue_of_the_network(
    pool: Pool, service: Service, jobs: Path
) -> None:
    """HTCondor starts a job that was removed while its hook ran, and removes it after that."""
    # What earlier jobs had.
    until(
        lambda: not [t for t in service.client.list() if t.state not in ENDED], "an empty network"
    )
    full = TransitRequest("full", "mu", "tacc", min_bps=0.9e9, lease_s=3600)
    assert service.client.request(full).state is TransitState.INSTALLED
    try:
        cluster = submit(pool, jobs, QUICK)
        until(lambda: service.of_job(cluster), "the request")
        (path,) = service.of_job(cluster)
        assert path.state is TransitState.QUEUED, path.reason
        pool.run(["condor_rm", cluster])
        given_back(service, path.id)
        until(lambda: not hooks(pool, True), "the hook to end")
    finally:
        service.client.release("full")


def test_what_is_installed_can_be_taken_out_again(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "config.d"
    place.mkdir()
    (place / "50-own").write_text("A = 1\n")
    words = ["install", "condor", "--config-dir", str(place), "--broker", service.url, "--yes"]
    assert main([*words, "--site", "local"]) == 0
    hooks = json.loads((tmp_path / "adon-transfers.json").read_text())
    assert hooks == {"broker": service.url, "site": "local"}
    assert main([*words, "--site", "local"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main([*words, "--undo"]) == 0
    assert [f.name for f in tmp_path.iterdir()] == ["config.d"]
    assert [f.name for f in place.iterdir()] == ["50-own"]
