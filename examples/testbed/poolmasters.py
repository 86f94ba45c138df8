"""The daemon families of a pool: each a ``condor_master`` and what it starts.

They end with the process that started them, however it dies: a pipe closes, and every master shuts
its family down. Whatever survives even that is found by its record, or by the mark that all of a
pool's processes carry (:mod:`examples.testbed.leftovers`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from examples.testbed import leftovers
from examples.testbed.leftovers import Process
from network_provisioner.base.errors import AdonError

_DOWN_S = 10.0

# The pipe on standard input closes when the pool's owner dies; then this master shuts down fast,
# with its jobs. `exec` keeps the process id, so $$ is the master's.
# (A shell gives what it starts with & /dev/null as standard input: hence descriptor 3.)
_KEEPER = 'exec 3<&0; { read -r _; kill -QUIT "$$"; } <&3 3<&- & exec "$@" < /dev/null 3<&-'


class Masters:
    """The masters of the pool in ``run_dir``, by name; each has the directory of its name there."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._record_file = run_dir / "pool.json"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __iter__(self) -> Iterator[str]:
        """The names of those that were started."""
        return iter(self._children)

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start a master with ``command``, its output to ``log/master.out``. Raises OSError."""
        home = self._run_dir / name
        with (home / "log/master.out").open("ab") as out:
            self._children[name] = subprocess.Popen(
                ["sh", "-c", _KEEPER, "sh", *command],
                env=dict(env),
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._record()

    def check(self, name: str, deadline: float, log: str) -> None:
        """Raise AdonError, with the last line of ``log``, where a master has ended or ``deadline``
        (of the monotonic clock) is over."""
        child = self._children[name]
        if child.poll() is None and time.monotonic() < deadline:
            return
        what = "did not get ready" if child.returncode is None else "ended"
        logs = [self._run_dir / name / "log" / part for part in (log, "MasterLog", "master.out")]
        said = [(path, log_text(path).strip().splitlines()) for path in logs]
        path, lines = next(((p, ls) for p, ls in said if ls), (logs[-1], ["nothing"]))
        raise AdonError(f"HTCondor at {name} {what}; {path} ends with: {lines[-1]}")

    def end(self) -> None:
        """End every process of the pool, also those of a killed run.

        Raises AdonError when a process cannot be ended.
        """
        masters = self._recorded()
        for child in self._children.values():
            if child.stdin:
                child.stdin.close()  # its keeper tells the master to shut down fast
        own = {child.pid for child in self._children.values()}
        leftovers.send((m for m in masters if m.pid not in own), signal.SIGQUIT)
        leftovers.wait_gone(masters, _DOWN_S)
        left = leftovers.end_marked(self._run_dir, masters)
        if left:
            raise AdonError(f"process {left[0].pid} of {self._run_dir} does not end")
        for child in self._children.values():
            child.wait()
        self._children.clear()
        self._record_file.unlink(missing_ok=True)

    def _record(self) -> None:
        known = [leftovers.identify(child.pid) for child in self._children.values()]
        rows = [[p.pid, p.started] for p in known if p]
        new = self._record_file.with_name("pool.json.new")
        new.write_text(json.dumps({"masters": rows}))
        new.replace(self._record_file)

    def _recorded(self) -> list[Process]:
        try:
            rows = json.loads(self._record_file.read_text())["masters"]
            return [Process(int(pid), int(started)) for pid, started in rows]
        except (OSError, ValueError, KeyError, TypeError):
            return []  # no earlier run, or one killed while it wrote: the mark finds the rest


def log_text(path: Path) -> str:
    """A log's text, empty where it is not there yet."""
    return path.read_text(errors="replace") if path.exists() else ""
