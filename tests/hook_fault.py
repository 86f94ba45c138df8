"""Runs a hook's script as DAGMan would, and lets something happen to it at a step of its own.

    python -I -S hook_fault.py FAULTS SCRIPT ARGUMENTS…

A step is the begin or the end of a call by which a hook changes the world or hears of it: a byte
on a socket, a write, a rename, a new process. They are counted from 1 as they come; nobody lists
them. FAULTS is a folder with

    plan.json     {"pre stage_in_local_tacc_0_7 0": {"step": 12, "kill": "hook"}, …}
    broker.pid    of the broker, and so on for other processes
    broker.port   that it listens on
    clock         seconds that the hooks' wall clock is ahead
    log           one JSON line for each hook that ended or was killed, with the seconds it worked
                  or waited for others, without those in which the machine let it stand still

``kill`` is ``hook``, ``dagman`` (the parent of this process) or a process of FAULTS. Standard
library only, as the hooks.
"""

import json
import os
import posix
import runpy
import signal
import socket
import sys
import time
from pathlib import Path

_CALLS = (
    "connect send sendall recv recv_into write replace rename mkdir unlink fsync link symlink "
    "flock fork posix_spawn execve execv"
)
STEPS = frozenset(_CALLS.split(" "))
# A call that was to wait for a while may take far longer where a processor or a disk is busy.
_WAITS = frozenset(["connect", "send", "sendall", "recv", "recv_into"])
_SLEEP = time.sleep


class Fault:
    """Counts steps and does what is planned at one of them."""

    def __init__(self, folder: str, key: str) -> None:
        plan = json.loads(Path(folder, "plan.json").read_text()).get(key, {})
        self.step: int = plan.get("step", 0)
        self.kill: str = plan.get("kill", "")
        self.folder, self.key = folder, key
        self.steps = 0
        self.names: list[str] = []
        self.waited_s = 0.0
        self.since = 0.0
        self.most_s = 0.0
        self.own = os.getpid()

    def __call__(self, _frame: object, event: str, what: object) -> None:
        """The profile function of the interpreter."""
        if event not in ("c_call", "c_return", "c_exception"):
            return
        name = getattr(what, "__name__", "")
        owner = getattr(what, "__self__", None)
        if name in _WAITS and isinstance(owner, socket.socket):
            self.wait(event == "c_call", owner)
        if name not in STEPS or isinstance(owner, str | bytes):
            return  # str.replace changes no file
        if os.getpid() != self.own:
            return
        step = f"{name}{'(' if event == 'c_call' else ')'}"
        if name == "recv" and self.names[-1:] == ["recv)"]:
            return  # an answer comes in one piece or in two, which is no difference
        self.steps += 1
        self.names.append(step)
        if self.steps == self.step:
            self.strike()

    def wait(self, begins: bool, sock: socket.socket) -> None:
        """It waits for others, for no longer than it wanted to."""
        if begins:
            self.since, wanted_s = time.monotonic(), sock.gettimeout()
            self.most_s = float("inf") if wanted_s is None else wanted_s
        else:
            self.waited_s += min(time.monotonic() - self.since, self.most_s)

    def sleep(self, seconds: float) -> None:
        """What hooks take for time.sleep."""
        _SLEEP(seconds)
        self.waited_s += seconds

    def strike(self) -> None:
        """What is planned, once: a new DAGMan runs the hook again."""
        try:
            Path(self.folder, f"struck {self.key}").touch(exist_ok=False)
        except FileExistsError:
            return
        self.tell("struck")
        if self.kill in ("hook", "dagman"):
            target = self.own if self.kill == "hook" else os.getppid()
        else:
            target = int(Path(self.folder, f"{self.kill}.pid").read_text())
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:  # another hook was quicker
            self.tell("missed")

    def tell(self, event: str) -> None:
        """One line of the log."""
        line = {
            "hook": self.key,
            "event": event,
            "kill": self.kill,
            "steps": self.steps,
            "at": time.time(),
            "spent_s": time.process_time() + self.waited_s,
            "last": self.names[-1:],
        }
        if event == "ended":
            line["names"] = self.names
        out = os.open(f"{self.folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(out, (json.dumps(line) + "\n").encode())
        os.close(out)


def wait_for(port: int) -> None:
    """Until somebody serves there, so that there is one to be killed."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def main() -> int:
    """The hook's own exit code."""
    folder, script, *arguments = sys.argv[1:]
    posix.environ[b"ADON_FAULT"] = b"1"  # so that it does its work itself, and no watcher does
    kind = script.rpartition("/")[2].partition(".")[0]
    ahead_s = float(Path(folder, "clock").read_text() or 0)
    if ahead_s:
        real = time.time
        time.time = lambda: real() + ahead_s
    job, retry = arguments[2:4] if arguments[:1] == ["--config"] else ("", "")
    fault = Fault(folder, f"{kind} {job} {retry}")
    if fault.kill not in ("", "hook", "dagman"):
        wait_for(int(Path(folder, f"{fault.kill}.port").read_text()))
    sys.argv = [script, *arguments]
    time.sleep = fault.sleep
    code = 0
    sys.setprofile(fault)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.setprofile(None)
    fault.tell("ended")
    return code


if __name__ == "__main__":
    sys.exit(main())
