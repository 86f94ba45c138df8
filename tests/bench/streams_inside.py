"""Runs inside a box for the bench P14: a file by GridFTP over a path of 53 ms, tuned in many ways.

    python -m tests.bench.streams_inside GRIDFTP FOLDER

Two hosts with a link between them. Reads lines of JSON from standard input, ``{"host": {sysctl:
value}, "link": {rate_bps, loss, limit_bytes}, "streams", "buffer_bytes", "bytes"}``, moves a file
so, and answers each with ``{"bps": …}``: bytes by the seconds of the server that received it. With
``beside``, so many streams of others fill the link meanwhile; with ``irods`` the file comes from a
zone, by the transfer plug-in.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "component"))
from relay_rig import within

from adon.machine import box
from condor_plugins.irods import results
from condor_plugins.irods.files import move
from condor_plugins.irods.transfer import Limits
from examples.testbed import delaylink, netns, traffic
from examples.testbed.gridftp import PORT, Endpoint, GridFtp
from examples.testbed.irods_zone import Zone
from examples.testbed.layout import dtn_name
from examples.testbed.procs import Daemon

RTT_S = 0.053
ENDS = {"src": "10.9.0.1", "dst": "10.9.0.2"}
_TIMES = re.compile(r"DATE=(\S+) .* START=(\S+) .*NBYTES=(\d+)")


class Path53:
    """Two hosts, their GridFTP servers, and the link between them."""

    def __init__(self, programs: Path, folder: Path, undo: ExitStack) -> None:
        self.folder, self._control = folder, folder / "link"
        self._undo = undo
        self._zone: Zone | None = None
        # First of all on the processors: a link that waits for its turn has a shorter queue.
        words = ["nice", "-n", "-20", sys.executable, "-m", "examples.testbed.delaylink"]
        words += [f"tap-{end}" for end in ENDS]
        words += ["--delay-s", str(RTT_S / 2), "--control", str(self._control)]
        link = Daemon(words, folder / "link.log")
        undo.callback(link.stop)
        link.wait(partial(delaylink.answers, self._control))
        box.name_hosts([f"{address} {dtn_name(end)}" for end, address in ENDS.items()])
        for end, address in ENDS.items():
            netns.add(end)
            netns.sysctl(end, netns.QUIET | netns.TCP_BUFFERS)
            netns.batch(None, [f"link set tap-{end} netns {end}"])
            netns.batch(end, [f"addr add {address}/24 dev tap-{end}", f"link set tap-{end} up"])
        places = {end: Endpoint(dtn_name(end), ENDS[end], PORT, end) for end in ENDS}
        self.gridftp = GridFtp(places, folder, programs)
        self.gridftp.start()
        undo.callback(self.gridftp.stop)

    def rate(self, request: dict[str, Any]) -> float:
        """The rate in b/s of a file moved as asked."""
        for end in ENDS:
            netns.sysctl(end, request["host"])
            # By route: a namespace may not choose any for all that the machine keeps for root.
            way = (
                f"{ENDS['src'].rpartition('.')[0]}.0/24 dev tap-{end}"
                f" congctl {request['congestion']}"
            )
            netns.batch(end, [f"route replace {way}"])
        delaylink.control(self._control, **request["link"])
        with ExitStack() as others:
            for number in range(request.get("beside", 0)):
                self._fill(number, others)
            if request.get("irods"):
                return self._irods_bps(request["bytes"], request["streams"])
            return self._gridftp_bps(request)

    def _gridftp_bps(self, request: dict[str, Any]) -> float:
        return gridftp_bps(
            self.gridftp, self.folder, request["bytes"], request["streams"], request["buffer_bytes"]
        )

    def _fill(self, number: int, others: ExitStack) -> None:
        """One stream that never ends."""
        port, log = 9100 + number, self.folder / f"others-{number}.log"
        program = [sys.executable, traffic.__file__]
        sink = [*netns.execute("dst"), *program, "sink", ENDS["dst"], str(port)]
        server = Daemon(sink, log)
        others.callback(server.stop)
        server.wait(lambda: log.exists() and "ready" in log.read_text())
        send = [*program, "send", ENDS["dst"], str(port), "--bytes", str(10**12)]
        others.callback(Daemon([*netns.execute("src"), *send], log).stop)

    def _irods_bps(self, size: int, streams: int) -> float:
        if self._zone is None:
            self._zone = within("src", Zone(self.folder / "vault", host=ENDS["src"]).__enter__)
            self._undo.callback(self._zone.__exit__)
        path = f"{self._zone.home()}/{size}"
        if path not in self._zone.objects:
            self._zone.put(path, bytes(size))
        account = {"irods_host": ENDS["src"], "irods_port": self._zone.port,
                   "irods_user_name": "rods", "irods_zone_name": self._zone.name,
                   "irods_password": "secret"}  # fmt: skip
        os.chdir(self.folder)
        (self.folder / "irods_environment.json").write_text(json.dumps(account))
        chunk = -(-size // streams)  # so that each stream has a part
        limits = Limits(chunk=chunk)

        def timed() -> tuple[dict[str, Any], float]:
            began = time.monotonic()
            outcomes = move([(f"irods://{path}", "target")], False, limits, streams)
            return dict(outcomes[0]), time.monotonic() - began

        results.CHUNK = chunk
        result, seconds = within("dst", timed)
        assert result["TransferSuccess"], result
        return 8 * size / seconds


def gridftp_bps(
    gridftp: GridFtp, folder: Path, size: int, streams: int, buffer_bytes: int
) -> float:
    """The rate in b/s of a file of ``size`` bytes from the server of "src" to that of "dst", both
    in ``folder``; ``buffer_bytes`` 0 is the system's."""
    source, target = folder / "source", folder / "target"
    source.touch()
    os.truncate(source, size)
    log = gridftp.transfer_log("dst")
    before = log.stat().st_size if log.exists() else 0
    words = [*netns.execute(gridftp.sites["src"].netns), "globus-url-copy", "-p", str(streams)]
    words += ["-tcp-bs", str(buffer_bytes)] if buffer_bytes else []
    words += [f"{gridftp.url('src')}{source}", f"{gridftp.url('dst')}{target}"]
    env = {**os.environ, **gridftp.transfer_env()}
    process = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    match = _TIMES.search(log.read_text()[before:])
    assert match and int(match[3]) == size, log.read_text()[before:]
    end, start = (datetime.strptime(match[n], "%Y%m%d%H%M%S.%f") for n in (1, 2))
    return 8 * size / (end - start).total_seconds()


def main(programs: Path, folder: Path) -> None:
    """One answer for each line."""
    with ExitStack() as undo:
        path = Path53(programs, folder, undo)
        for line in sys.stdin:
            print(json.dumps({"bps": path.rate(json.loads(line))}), flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
