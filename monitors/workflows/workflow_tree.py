"""The workflows that are followed: each with those inside it, by UUID, by folder and by DAG."""

from __future__ import annotations

import errno
import logging
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from monitors.base.measurement import Measurement
from monitors.workflows.discovery import FoundWorkflow
from monitors.workflows.facts.runs import ENDS
from monitors.workflows.followed import FollowedWorkflow
from monitors.workflows.logs.events import JobEvent, Kind
from monitors.workflows.logs.status import NOT_STARTED, Status, WorkflowState, for_people, total
from monitors.workflows.planned.sub_workflows import sub_workflows
from monitors.workflows.planned.submit_dir import SubmitDir, running
from network_provisioner.base.errors import InputError

_log = logging.getLogger(__name__)

_GONE = "the submit directory is gone"
_WHOLE_S = 1.0  # HTCondor's logs may have whole seconds
_PORTION = 5000  # measurements that a step of one workflow makes: memory stays flat
_DEEPEST = 50  # workflows within workflows; a DAG that holds itself must not hold us


class TreeMember(FollowedWorkflow):
    """One workflow among those that are followed."""

    def __init__(self, submit_dir: SubmitDir, parent: TreeMember | None = None) -> None:
        root, above = ("", "") if parent is None else (parent.root, parent.dir.workflow)
        super().__init__(submit_dir, root, above)
        self.above = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        # By the job that runs it, the newest plan last.
        self.inside: dict[str, list[TreeMember]] = {}
        self.run_by: dict[str, TreeMember] = {}  # the plan that the job's newest DAGMan runs
        self.waiting: list[tuple[str, JobEvent]] = []  # of jobs whose workflow is not there yet
        self.is_new = True
        self.is_gone = False
        self.is_given_up = False  # nobody waits for it any more

    @property
    def is_planned(self) -> bool:
        """Whether its directory is its own, planned by Pegasus."""
        return bool(self.dir.braindump)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come: it has ended, or what it is a part of has, or it is not
        there any more, or nobody waits for it."""
        if self.ended or self.is_gone or self.is_given_up:
            return True
        return self.above is not None and self.above.is_over


class WorkflowTree:
    """``complain`` is told of trouble with one workflow, which is not the others'; ``added`` of
    every workflow that is followed from then on, ``left`` of folders that are no longer there. With
    ``rests``, what was read of workflows that have ended is let go of. ``user_of`` gives whose a
    workflow is, as far as that was known before."""

    def __init__(
        self,
        complain: Callable[[Path, str], None],
        added: Callable[[TreeMember], None],
        rests: bool = False,
        left: Callable[[Path], None] = lambda _: None,
        user_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._complain, self._added, self._rests, self._left = complain, added, rests, left
        self._user_of = user_of
        self._by_dag: dict[Path, TreeMember] = {}
        self._by_uuid: dict[str, TreeMember] = {}
        self._by_folder: dict[Path, list[TreeMember]] = {}
        self._found: dict[FoundWorkflow, TreeMember] = {}

    @property
    def members(self) -> list[TreeMember]:
        """All."""
        return list(self._by_dag.values())

    @property
    def roots(self) -> list[TreeMember]:
        """Those that are a part of no other."""
        return [member for member in self._by_dag.values() if member.above is None]

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come of any."""
        return all(member.is_over for member in self._by_dag.values() if member.above is None)

    def of(self, workflow: str) -> TreeMember | None:
        """By its UUID."""
        return self._by_uuid.get(workflow)

    def in_folder(self, folder: Path) -> Sequence[TreeMember]:
        """Those whose files are there."""
        return self._by_folder.get(folder, ())

    def below(self, member: TreeMember) -> list[TreeMember]:
        """All inside one, and inside those."""
        members: list[TreeMember] = []
        for plans in member.inside.values():
            for plan in plans:
                members += [plan, *self.below(plan)]
        return members

    def total_of(self, member: TreeMember) -> Status:
        """Of a workflow with all that is inside it."""
        inside = [plans[-1] for plans in member.inside.values()]
        parts = [
            self.total_of(child) for child in inside if child.status is not None or child.inside
        ]
        return total([member.status or NOT_STARTED, *parts])

    def members_to_check(self, ended_too: bool) -> list[TreeMember]:
        """Those that may have changed although no notice came."""
        members: list[TreeMember] = []
        for member in self.roots:
            if member.is_gone or (member.ended and not ended_too) or _is_there(member.dir.path):
                continue
            member.is_gone = True  # another one may be planned in its place
            if not member.ended:
                self._complain(member.dir.path, f"{member.dir.path}: {_GONE}: no longer followed")
                self._end_of_gone(member)
                members.append(member)
            for candidate in (member, *self.below(member)):
                candidate.is_gone = True
                if not _is_there(folder := candidate.files[0]):
                    self._left(folder)
        others = (m for m in self._by_dag.values() if m not in members)
        return members + [m for m in others if not m.is_over or (ended_too and not m.is_gone)]

    def _end_of_gone(self, member: TreeMember) -> None:
        """Nobody will ever tell how a workflow ended whose directory is gone."""
        status = member.status or NOT_STARTED
        at = max(time.time(), status.at)
        ended = replace(status, state=WorkflowState.REMOVED, at=at, reason=_GONE)
        member.note(ended, f"directory:{status.at:.3f}", "adon")

    # ---------------------------------------------------------------- more of them

    def take_in(self, workflow: FoundWorkflow) -> None:
        """Follow what was found, unless it is followed already."""
        known = self._found.get(workflow)
        if known is not None and not (known.is_gone and _is_there(workflow.folder)):
            return
        try:
            member = self.add(
                running(workflow.folder, workflow.dag)
                if workflow.dag
                else SubmitDir(workflow.folder)
            )
        except InputError as error:
            if _is_there(workflow.folder):
                self._complain(workflow.folder / workflow.dag, str(error))
            return
        except (OSError, ValueError, RuntimeError) as error:
            # Another user's folder, a name that is none, links in a circle: not the others' trouble
            self._complain(
                workflow.folder / workflow.dag,
                f"{workflow.folder}: not followed: {error}",
            )
            return
        self._found[workflow] = member

    def add(self, submit_dir: SubmitDir, parent: TreeMember | None = None) -> TreeMember:
        """Follow a workflow; the one that is followed already where its DAG is. Raises InputError
        for one that goes by the name of another user's."""
        dag = submit_dir.dag.absolute().resolve()
        known = self._by_dag.get(dag)
        if known is not None and not known.is_gone:
            if known.above is None and parent is not None and not _is_within(parent, known):
                known.above = parent  # it was found by itself, before what it is a part of
            return known
        member = TreeMember(submit_dir, parent)
        user, same = member.facts().details["user"], self._by_uuid.get(submit_dir.workflow)
        whose = self._user_of(submit_dir.workflow)
        if (user and whose and user != whose) or (same and same.dir.owner != submit_dir.owner):
            raise InputError(
                f"{submit_dir.path}: found workflow {submit_dir.workflow}, which is another user's"
            )
        self._by_dag[dag] = member
        self._by_uuid[member.dir.workflow] = member
        here = [m for m in self._by_folder.get(member.files[0], ()) if m is not known]
        self._by_folder[member.files[0]] = [*here, member]
        self._added(member)
        return member

    # ---------------------------------------------------------------- one of them

    def step(self, member: TreeMember) -> tuple[list[Measurement], list[Status], list[TreeMember]]:
        """What is new of one: measurements, changes of status, and which others to read next; the
        same one where there is much."""
        was_over, complete = member.is_over, True
        try:
            complete = member.step(_PORTION)
            if lost := member.lost_log():
                self._complain(member.dir.path, lost)
        except InputError as error:  # one workflow's trouble is not the others'
            self._complain(member.dir.path, str(error))
        except Exception as error:  # nor is a fault of ours that only its files bring to light
            _log.debug("%s", member.dir.path, exc_info=error)
            self._complain(member.dir.path, f"{member.dir.path}: not read to its end: {error!r}")
        others = self._sub_events(member)
        if not complete:
            measurements, statuses = member.take()
            return measurements, statuses, [member, *others]
        if member.is_over and not was_over:
            others += self.below(member)
        if member.above is not None and member.above.is_over and not member.ended:
            self._ended_with(member, member.above)
        measurements, statuses = member.take()
        if measurements and not member.is_new:
            self._give_up_on(member, False)  # it goes on after all
        if member.is_new:
            member.is_new, statuses = False, statuses[-1:]
        if member.is_over and self._rests:
            member.rest()
        return measurements, statuses, others

    def give_up(self, now: float, after_s: float) -> None:
        """Waits no longer for those of which, with all inside them, nothing was written for
        ``after_s`` seconds."""
        for member in self.roots:
            if member.is_over or member.is_new:
                continue
            written_at = max(workflow.written_at for workflow in (member, *self.below(member)))
            if now - written_at >= after_s:
                quiet = f"for {for_people(now - written_at)}" if written_at else "at all"
                about = f"nothing was written {quiet}: no longer waited for"
                self._complain(member.dir.path, f"{member.dir.path}: {about}")
                self._give_up_on(member, True)

    def _give_up_on(self, member: TreeMember, value: bool) -> None:
        top = member
        while top.above is not None:
            top = top.above
        top.is_given_up = value

    def _sub_events(self, member: TreeMember) -> list[TreeMember]:
        """Tells the workflows inside what happened to their DAGMans; those that it changed."""
        events, member.waiting = [*member.waiting, *member.take_sub_events()], []
        changed: dict[TreeMember, None] = {}
        for job, event in events:
            if event.kind is Kind.SUBMIT or job not in member.inside:
                plans = self._plans(member, job)
                if not plans:
                    if event.kind in ENDS:
                        missing = f"found no workflow that job {job} ran, though it has ended"
                        self._complain(member.dir.path, f"{member.dir.path}: {missing}")
                    member.waiting.append((job, event))
                    continue
                changed.update(dict.fromkeys(plans))
                member.inside[job] = plans
                member.run_by[job] = _plan_at(plans, event.at)
            plan = member.run_by[job]
            plan.dagman_event(event)
            changed[plan] = None
        return list(changed)

    def _plans(self, member: TreeMember, job: str) -> list[TreeMember]:
        if member.depth >= _DEEPEST:
            return []
        try:
            plans = [self.add(submit_dir, member) for submit_dir in sub_workflows(member.dir, job)]
        except (InputError, OSError, ValueError) as error:  # one may not look, or it is no name
            self._complain(member.dir.path / job, str(error))
            return []
        return [plan for plan in plans if plan.above is member]

    def _ended_with(self, member: TreeMember, above: TreeMember) -> None:
        """It has not said how it ended and never will: what runs it has ended."""
        status = above.status
        while status is None and above.above is not None:
            above = above.above
            status = above.status
        if status is None or member.status is None or not status.ended:
            return
        state = (
            WorkflowState.REMOVED if status.state is WorkflowState.REMOVED else WorkflowState.FAILED
        )
        member.note(
            replace(member.status, state=state, at=max(status.at, member.status.at)),
            f"with:{above.dir.workflow}:{status.at:.3f}",
            "dagman",
        )


def _plan_at(plans: Sequence[TreeMember], at: float) -> TreeMember:
    """The newest that was there at a time (Unix seconds): who begins to follow late finds those
    that came later too. Where no file says so, the newest of all."""
    for plan in reversed(plans):
        with suppress(OSError, ValueError):
            if plan.dir.dag.stat().st_mtime <= at + _WHOLE_S:
                return plan
    return plans[-1]


def _is_within(member: TreeMember, other: TreeMember) -> bool:
    """Whether one is the other or inside it, however deep."""
    above: TreeMember | None = member
    while above is not None and above is not other:
        above = above.above
    return above is not None


def _is_there(folder: Path) -> bool:
    """Not where nothing is: a file server that does not answer has not lost it."""
    try:
        return stat.S_ISDIR(folder.stat().st_mode)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)


def ended_well(members: Iterable[TreeMember]) -> bool:
    """Whether all are done."""
    return all(m.status is not None and m.status.state is WorkflowState.DONE for m in members)
