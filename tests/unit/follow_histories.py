"""Runs of a workflow, one after the other in one directory, as DAGMan and HTCondor write them (seen
with 25.14.1): DAGMan's own words in whole seconds, HTCondor's events in milliseconds, or in whole
seconds too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from monitor_files import (
    START,
    Submitted,
    aborted,
    append,
    event,
    executing,
    exiting,
    stamp,
    starting,
    submitted,
    table,
    terminated,
)

from monitors.archive.archive import Archive

ONE, TWO, STAGE = (job[0] for job in Submitted.JOBS)
JOBS = (STAGE, ONE, TWO)
WITH_POST = ONE
EMPTIED = ""
ENDS = ("done", "failed", "removed", "killed", "removed before it began")
STEPS_MS = (0, 1, 40, 300, 950, 1000, 4321)


@dataclass
class History:
    """What happens, in the order in which it is written, and what of it should be known."""

    draw: Any
    whole_seconds: bool = False
    acts: list[tuple[str, str]] = field(default_factory=list)
    statuses: list[tuple[Any, ...]] = field(default_factory=list)
    attempts: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=lambda: list(JOBS))
    ms: int = 0
    cluster: int = 10
    counts: tuple[int, ...] = (0, 0, 0, 0)  # done, queued, failed, of how many
    late: list[tuple[str, str]] = field(default_factory=list)  # what is written when it pleases

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {text!r}" for name, text in self.acts)

    def at(self) -> float:
        """When the next thing happens, as HTCondor writes it."""
        self.ms += self.draw(st.sampled_from(STEPS_MS))
        return START + (self.ms // 1000 if self.whole_seconds else self.ms / 1000)

    def out(self, text: str) -> None:
        self.acts.append(("out", text))

    def now(self) -> float:
        self.at()
        return START + self.ms // 1000

    def both(self, text: str) -> None:
        self.acts += [("log", text), ("nodes", text)]

    def status(self, state: str) -> None:
        current = (state, *self.counts)
        if not self.statuses or self.statuses[-1] != current:
            self.statuses.append(current)

    def table(self, done: int, queued: int, failed: int) -> None:
        self.counts = (done, queued, failed, len(JOBS))
        rest = len(JOBS) - done - queued - failed
        self.out(table(self.now(), done=done, queued=queued, fail=failed, unready=rest))
        self.status("running")

    # ------------------------------------------------------------ runs

    def later(self) -> None:
        """What HTCondor says of jobs that were removed may come after their DAGMan's end."""
        while self.late and self.draw(st.booleans()):
            self.acts.append(self.late.pop(0))

    def run(self, end: str) -> None:
        dagman, self.cluster = self.cluster, self.cluster + 1
        self.acts.append(("dagman", submitted(dagman, self.at())))
        if end == "removed before it began":
            self.acts.append(("dagman", aborted(dagman, self.at())))
            self.statuses.append(("removed", *self.counts))
            return
        self.acts.append(("dagman", executing(dagman, self.at())))
        self.out(starting(self.now()))
        if self.statuses:
            self.status("running")
        self.acts.append(("nodes", EMPTIED))
        self.table(len(JOBS) - len(self.left), 0, 0)
        tries: dict[str, int] = {}
        failing = self.draw(st.sampled_from(self.left)) if end != "done" else ""
        reason = ""
        while self.left:
            if self.draw(st.integers(0, 5)) == 5:  # the schedd starts it again, which takes a while
                self.out(starting(self.now()))
                self.ms += 1000
            self.later()
            job = self.left[0]
            if job == failing and end == "failed" and job not in tries and self.draw(st.booleans()):
                reason = "PRE Script failed with status 1"
                self.lost.append(job)
                break
            number = tries.setdefault(job, 0)
            tries[job] += 1
            good = self.attempt(job, number, end if job == failing else "done")
            if good is None:
                break
            if good:
                self.left.pop(0)
                self.table(len(JOBS) - len(self.left), 0, 0)
            elif number == 1:
                reason = "Job proc failed with status 1"
                break
        self.end(dagman, end, self.left[0] if reason else "", reason)

    def attempt(self, job: str, number: int, end: str) -> bool | None:
        """Whether it succeeded, None if DAGMan goes before it ends."""
        draw, cluster = self.draw, self.cluster
        self.cluster += 1
        done = len(JOBS) - len(self.left)
        at = self.at()
        known: dict[str, Any] = {"retry": number, "submitted_at": round(at, 3)}
        self.both(submitted(cluster, at, job))
        self.table(done, 1, 0)
        starts = 1
        started = self.at()
        self.both(executing(cluster, started))
        for _ in range(draw(st.integers(0, 2))):
            self.both(event(12, cluster, self.at(), "Job was held.", "no more disk"))
            self.both(event(13, cluster, self.at(), "Job was released."))
            started, starts = self.at(), starts + 1
            self.both(executing(cluster, started))
        known |= {"starts": starts, "started_at": round(started, 3)}
        if end in ("removed", "killed"):
            gone = aborted(cluster, self.at())
            self.late += [("log", gone), ("nodes", gone)]
            self.attempts[job, cluster] = known | {"outcome": "removed"}
            return None
        good = end == "done" and not (number == 0 and draw(st.booleans()))
        by_post = job == WITH_POST and draw(st.booleans())  # the script alone says that it failed
        self.both(terminated(cluster, self.at(), int(not good and not by_post)))
        if job == WITH_POST:
            code = int(not good)
            at = self.at()
            text = f"(1) Normal termination (return value {code})"
            self.acts.append(("nodes", event(16, cluster, at, "POST Script terminated.", text,
                                             f"DAG Node: {job}")))  # fmt: skip
            now = stamp(self.now())
            how = f"failed with status {code}" if code else "completed successfully."
            self.out(
                f"{now} Event: ULOG_POST_SCRIPT_TERMINATED for HTCondor Node {job}"
                f" ({cluster}.0.0) {{{stamp(at)}}}\n{now} POST Script of node {job} {how}\n"
            )
        self.attempts[job, cluster] = known | {"outcome": "done" if good else "failed"}
        return good

    def end(self, dagman: int, end: str, failed: str, reason: str) -> None:
        done = len(JOBS) - len(self.left)
        if end == "killed":  # without a word of its own
            self.acts.append(("dagman", aborted(dagman, self.at())))
            self.statuses.append(("removed", *self.counts))
            self.later()
            return
        if failed:
            self.table(done, 0, 1)
            now = stamp(self.now())
            self.out(
                f"{now} ERROR: the following job(s) failed:\n{now}       Node Name: {failed}\n"
                f"{now}           Error: {reason}\n"
            )
        elif end == "removed":
            self.out(f"{stamp(self.now())} Received SIGUSR1\n")
        code = int(bool(failed)) or 2 * int(end == "removed")
        self.out(exiting(self.now(), code))
        state = "removed" if end == "removed" else "failed" if failed else "done"
        self.status(state)
        ended = aborted if end == "removed" else lambda c, at: terminated(c, at, code)
        self.acts.append(("dagman", ended(dagman, self.at())))
        self.later()


@st.composite
def histories(draw: Any) -> History:
    made = History(draw, draw(st.booleans()))
    for end in draw(st.lists(st.sampled_from(ENDS), min_size=1, max_size=4)):
        if made.left:
            made.run(end)
    made.acts += made.late
    return made


class World:
    """The directory, in which ``portions`` say how much is written before each file is read."""

    def __init__(
        self, folder: Path, acts: Sequence[tuple[str, str]], portions: Sequence[int]
    ) -> None:
        self.planned = Submitted(folder)
        self.open_out = self.planned.out  # what DAGMan writes to, also where it was renamed
        append(self.planned.path / "wf-0.dag", f"SCRIPT POST {WITH_POST} /bin/check\n")
        self.acts, self.portions = acts, list(portions)
        self.next, self.part = 0, 0

    def more(self) -> None:
        if self.portions:
            self.write(self.portions.pop(0))

    def write(self, n_chars: int) -> None:
        while n_chars > 0 and self.next < len(self.acts):
            file, text = self.acts[self.next]
            path = self.open_out if file == "out" else getattr(self.planned, file)
            if text == EMPTIED:
                path.write_bytes(b"")
            piece = text[self.part : self.part + n_chars]
            append(path, piece)
            n_chars -= len(piece) or 1
            self.part += len(piece)
            if self.part >= len(text):
                self.next, self.part = self.next + 1, 0


def found(archive: Archive) -> dict[str, Any]:
    every = [m for metric in archive.metrics() for m in archive.query(metric)]
    return {
        m.id: (m.value, m.at, dict(m.details) | {"output": ""})
        for m in every
        if m.metric not in ("workflow", "dag")  # they are as old as their directory
    }
