"""Jobs that wait for what will not come by itself: no slot fits them, or they are on hold.

HTCondor lets such a job wait without a word, and DAGMan waits with it. ``condor_q -better-analyze``
would tell, for who knows that it must be asked; this tells the same facts as values, which
``adon pool waiting`` prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import classad2
import htcondor2

from condor_plugins.collector import answered_by
from condor_plugins.jobs.jobad import takes_a_slot
from condor_plugins.pool.queue import HELD, IDLE, number, whole

_MOST_JOBS = 1000  # looked at in one go; those of a larger crowd are alike


@dataclass(frozen=True, slots=True)
class StuckJob:
    """A job that waits without a match since ``since`` (Unix seconds). ``why`` continues after its
    name."""

    job: str
    why: str
    since: float


def find_stuck(
    jobs: Iterable[classad2.ClassAd],
    slots: Sequence[classad2.ClassAd],
    now: float,
    patience_s: float,
) -> list[StuckJob]:
    """Those of ``jobs`` that are on hold, or have been idle for ``patience_s`` and fit no slot.

    A job that fits a slot which is busy only has to wait for it, and is not among them.
    """
    entire = [whole(slot) for slot in slots]
    reasons: dict[tuple[str, ...], str] = {}  # of jobs that are alike to slots
    stuck_jobs = []
    for job in jobs:
        since = number(job, "EnteredCurrentStatus") or number(job, "QDate") or now
        status = job.get("JobStatus")
        if status == HELD:
            why = f"is on hold: {_one_line(str(job.get('HoldReason') or 'without a reason'))}"
        elif status == IDLE and now - since >= patience_s and takes_a_slot(job):
            requirements = (
                str(job.flatten(job.lookup("Requirements"))) if "Requirements" in job else ""
            )
            key = requirements, str(job.get("AutoClusterId")), str(job.get("User"))
            if key not in reasons:
                reasons[key] = why_no_slot(job, entire)
            why = reasons[key]
        else:
            continue
        if why:
            stuck_jobs.append(StuckJob(_name(job), why, since))
    return sorted(stuck_jobs, key=lambda stuck: (stuck.since, stuck.job))


def why_no_slot(job: classad2.ClassAd, slots: Sequence[classad2.ClassAd]) -> str:
    """Why none of ``slots`` can ever take ``job``, empty if one can."""
    if not slots:
        return "matches no slot: the pool has none"
    fit = [slot for slot in slots if slot.matches(job)]
    if any(_busy(slot) or job.matches(slot) for slot in fit):
        return ""
    if fit:
        return f"matches no slot: {_counted(len(fit))} would do, none accepts it (START)"
    clauses = conjuncts(str(job.lookup("Requirements"))) if "Requirements" in job else []
    met = {clause: sum(_meets(job, clause, slot) for slot in slots) for clause in clauses}
    telling = [c for c in met if not met[c]] or [c for c in met if met[c] < len(slots)] or clauses
    reason = " and ".join(_with_values(job, clause) for clause in telling)
    return f"matches no slot: none of {_counted(len(slots))} has {reason or 'what it requires'}"


def conjuncts(text: str) -> list[str]:
    """The parts of a ClassAd expression that are joined by ``&&`` at its top, without brackets
    around a whole part. What is in quotes or brackets stays together."""
    text = _bare(text.strip())
    parts, start, depth, at = [], 0, 0, 0
    while at < len(text):
        if text[at] in "\"'":
            at = _end_of_quoted(text, at)
        elif text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith("||", at):
            return [text]  # binds weaker than &&: it is one condition
        elif depth == 0 and text.startswith("?", at) and text[at - 1 : at] != "=":
            return [text]
        elif depth == 0 and text.startswith("&&", at):
            parts.append(text[start:at])
            at += 1
            start = at + 1
        at += 1
    if not parts:
        return [text] if text else []
    return [conjunct for part in (*parts, text[start:]) for conjunct in conjuncts(part)]


def _bare(text: str) -> str:
    """Without brackets that close only at its end."""
    while text.startswith("(") and text.endswith(")"):
        depth, at = 0, 0
        while at < len(text):
            if text[at] in "\"'":
                at = _end_of_quoted(text, at)
            elif text[at] == "(":
                depth += 1
            elif text[at] == ")":
                depth -= 1
                if depth == 0:
                    break
            at += 1
        if at < len(text) - 1:
            return text
        text = text[1:-1].strip()
    return text


def _end_of_quoted(text: str, at: int) -> int:
    """Where the quotes that open at ``at`` close."""
    end = at + 1
    while end < len(text) and text[end] != text[at]:
        end += 2 if text[end] == "\\" else 1
    return end


def _meets(job: classad2.ClassAd, clause: str, slot: classad2.ClassAd) -> bool:
    """Whether ``slot`` meets one condition of ``job``, evaluated as the negotiator does."""
    asking = classad2.ClassAd(str(job))
    asking["Requirements"] = classad2.ExprTree(clause)
    return bool(slot.matches(asking))


def _with_values(job: classad2.ClassAd, clause: str) -> str:
    """A condition with what the job itself says put in: ``TARGET.Memory >= 9216``."""
    return _one_line(_bare(str(job.flatten(classad2.ExprTree(clause)))))


def _busy(slot: Mapping[str, Any]) -> bool:
    """Whether its own requirements say nothing now: while it is claimed it takes no other job."""
    return slot.get("State") not in ("Unclaimed", "Owner")


def _name(job: Mapping[str, Any]) -> str:
    """Its name in the DAG, else its number."""
    return str(job.get("DAGNodeName") or f"{job.get('ClusterId')}.{job.get('ProcId')}")


def _counted(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def read(dag: int | None, patience_s: float) -> list[StuckJob]:
    """The stuck jobs of the pool that ``CONDOR_CONFIG`` names, of the DAG with this cluster id or
    of everybody. Raises AdonError."""
    mine = "true" if dag is None else f"DAGManJobId == {dag}"
    constraint = f"({mine}) && (JobStatus == {IDLE} || JobStatus == {HELD})"
    with answered_by("schedd"):
        jobs = htcondor2.Schedd().query(constraint=constraint, limit=_MOST_JOBS)
    with answered_by("collector"):
        # Data slots (HTCondor 25) run no jobs.
        workers = "IsDataSlot =!= true"
        slots = htcondor2.Collector().query(htcondor2.AdType.Slot, workers) if jobs else []
    return find_stuck(jobs, slots, time.time(), patience_s)
