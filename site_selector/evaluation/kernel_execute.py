"""Executing a mapping, as kernels: jobs on workers, transfers that share links.

Transfers at one link share its capacity evenly. Its *service* counts the bytes that each of them
has got since the link was last idle, so a transfer ends when the service reaches what it was at the
transfer's start plus the transfer's bytes: a new transfer changes when others end, but not in
which order. Heaps are skew heaps (Sleator, Tarjan 1986), nodes of which are jobs or transfers.
"""

from __future__ import annotations

from typing import NamedTuple

from site_selector.mapping.kernel import kernel
from site_selector.mapping.kernel_data import Floats, Ints


class Plan(NamedTuple):
    """What is executed. ``x_at[i]`` to ``x_at[i + 1]`` is the range of i's entries in ``x``.

    ``rank`` orders jobs that wait for a worker, the least first; ``source`` is where a place takes
    an input file of the workflow from (file * n_places + place), -1 for results; ``wanted[f]`` is 1
    for a result that goes to the place ``output``.
    """

    n_jobs: int
    n_sites: int
    n_places: int
    n_files: int
    output: int
    per_job: bool
    parents_at: Ints
    children_at: Ints
    children: Ints
    reads_at: Ints
    writes_at: Ints
    writes: Ints
    readers_at: Ints
    readers: Ints
    source: Ints
    wanted: Ints
    rank: Floats
    compute: Floats
    queue: Floats
    workers: Ints
    size: Floats
    per_byte: Floats


class State(NamedTuple):
    """What happens: work space, and afterwards the record.

    ``key``, ``left`` and ``right`` of jobs serve two heaps, because a job is never in both: what
    happens next, by time, and who waits for a worker of a site, by rank.
    """

    counts: Ints
    missing: Ints  # parents that are not done and files that are not there
    ready: Floats
    start: Floats
    end: Floats
    running: Ints
    key: Floats
    left: Ints
    right: Ints
    free: Ints
    queue_root: Ints
    touched: Ints
    seen: Ints
    link_root: Ints
    link_count: Ints
    service: Floats
    updated: Floats
    next_end: Floats
    move_file: Ints
    move_src: Ints
    move_dst: Ints
    move_for: Ints
    move_start: Floats
    move_end: Floats
    move_key: Floats
    move_left: Ints
    move_right: Ints


NEVER = 1e300  # later than any event
EVERY_JOB, NO_JOB = -1, -2  # for whom a transfer is, beside the jobs themselves
EVENTS, TRANSFERS = 0, 1  # in state.counts


@kernel
def execute(plan: Plan, state: State, site: Ints) -> float:
    """Run to the end; returns the makespan in seconds."""
    reset(plan, state, site)
    begin(plan, state, site)
    last = now = 0.0
    while True:
        link = soonest(state.next_end)
        at = state.next_end[link]
        first = state.counts[EVENTS]
        job_next = first >= 0 and state.key[first] <= at
        if job_next:
            at = state.key[first]
        # Workers are given out once all that happens at one instant has happened, so that of the
        # jobs that come to the queue together the most urgent goes first.
        if at > now:
            if dispatch(plan, state, site, now):
                continue
            now = at
        if job_next:
            state.counts[EVENTS] = join(
                state.key, state.left, state.right, state.left[first], state.right[first]
            )
            if state.running[first] == 1:
                finish(plan, state, site, first, now)
            else:
                wait_for_worker(plan, state, site, first)
            last = max(last, now)
        elif at < NEVER:
            deliver(plan, state, site, link, now)
            last = max(last, now)
        else:
            return last


@kernel
def soonest(next_end: Floats) -> int:
    """The link at which a transfer ends next."""
    link = 0
    for i in range(1, len(next_end)):
        if next_end[i] < next_end[link]:
            link = i
    return link


@kernel
def reset(plan: Plan, state: State, site: Ints) -> None:
    """Everything as before the start."""
    state.counts[EVENTS], state.counts[TRANSFERS] = -1, 0
    for job in range(plan.n_jobs):
        parents = plan.parents_at[job + 1] - plan.parents_at[job]
        files = plan.reads_at[job + 1] - plan.reads_at[job]
        state.missing[job] = parents + files
        state.running[job] = 0
    for here in range(plan.n_sites):
        state.free[here] = plan.workers[here]
        state.queue_root[here] = -1
        state.touched[here] = 0
    for link in range(plan.n_places * plan.n_places):
        state.link_root[link], state.link_count[link] = -1, 0
        state.service[link], state.updated[link], state.next_end[link] = 0.0, 0.0, NEVER


@kernel
def begin(plan: Plan, state: State, site: Ints) -> None:
    """Inputs of the workflow set out; jobs that need nothing are ready."""
    for file in range(plan.n_files):
        if plan.source[file * plan.n_places] >= 0:
            send_input(plan, state, site, file)
    for job in range(plan.n_jobs):
        if state.missing[job] == 0:
            make_ready(plan, state, site, job, 0.0)


@kernel
def send_input(plan: Plan, state: State, site: Ints, file: int) -> None:
    """An input of the workflow goes to every site that needs it, when the workflow starts."""
    for place in range(plan.n_places):
        state.seen[place] = 0
    for i in range(plan.readers_at[file], plan.readers_at[file + 1]):
        job = plan.readers[i]
        dst = site[job]
        src = plan.source[file * plan.n_places + dst]
        if src == dst:
            state.missing[job] -= 1
        elif plan.per_job:
            send(plan, state, file, src, dst, job, 0.0)
        elif state.seen[dst] == 0:
            state.seen[dst] = 1
            send(plan, state, file, src, dst, EVERY_JOB, 0.0)


@kernel
def send_result(plan: Plan, state: State, site: Ints, file: int, src: int, now: float) -> None:
    """A result goes to every site that needs it, and to where the workflow wants it."""
    for place in range(plan.n_places):
        state.seen[place] = 0
    for i in range(plan.readers_at[file], plan.readers_at[file + 1]):
        job = plan.readers[i]
        dst = site[job]
        if dst == src:
            meet(plan, state, site, job, now)
        elif plan.per_job:
            send(plan, state, file, src, dst, job, now)
        elif state.seen[dst] == 0:
            state.seen[dst] = 1
            send(plan, state, file, src, dst, EVERY_JOB, now)
    back = plan.output >= 0 and plan.wanted[file] == 1 and plan.output != src
    if back and state.seen[plan.output] == 0:
        send(plan, state, file, src, plan.output, NO_JOB, now)


@kernel
def send(
    plan: Plan, state: State, file: int, src: int, dst: int, for_whom: int, now: float
) -> None:
    """Start a transfer; others at the same link become slower."""
    move = state.counts[TRANSFERS]
    state.counts[TRANSFERS] = move + 1
    state.move_file[move], state.move_src[move], state.move_dst[move] = file, src, dst
    state.move_for[move], state.move_start[move] = for_whom, now
    link = src * plan.n_places + dst
    serve(plan, state, link, now)
    state.move_key[move] = state.service[link] + plan.size[file]
    state.move_left[move] = state.move_right[move] = -1
    state.link_root[link] = join(
        state.move_key, state.move_left, state.move_right, state.link_root[link], move
    )
    state.link_count[link] += 1
    foresee(plan, state, link, now)


@kernel
def serve(plan: Plan, state: State, link: int, now: float) -> None:
    """What each transfer at a link has got by now."""
    if state.link_count[link] == 0:
        state.service[link] = 0.0
    else:
        share = plan.per_byte[link] * state.link_count[link]
        state.service[link] += (now - state.updated[link]) / share
    state.updated[link] = now


@kernel
def foresee(plan: Plan, state: State, link: int, now: float) -> None:
    """When the next transfer at a link ends if nothing comes between."""
    root = state.link_root[link]
    if root < 0:
        state.next_end[link] = NEVER
    else:
        left = max(0.0, state.move_key[root] - state.service[link])
        state.next_end[link] = now + left * plan.per_byte[link] * state.link_count[link]


@kernel
def deliver(plan: Plan, state: State, site: Ints, link: int, now: float) -> None:
    """A transfer ends; jobs that waited for the file may become ready."""
    move = state.link_root[link]
    state.link_root[link] = join(
        state.move_key,
        state.move_left,
        state.move_right,
        state.move_left[move],
        state.move_right[move],
    )
    state.service[link], state.updated[link] = state.move_key[move], now
    state.link_count[link] -= 1
    foresee(plan, state, link, now)
    state.move_end[move] = now
    for_whom = state.move_for[move]
    if for_whom >= 0:
        meet(plan, state, site, for_whom, now)
    else:
        # Also where it was sent for the workflow: in that case no job of the place reads it.
        file, dst = state.move_file[move], state.move_dst[move]
        for i in range(plan.readers_at[file], plan.readers_at[file + 1]):
            if for_whom == EVERY_JOB and site[plan.readers[i]] == dst:
                meet(plan, state, site, plan.readers[i], now)


@kernel
def meet(plan: Plan, state: State, site: Ints, job: int, now: float) -> None:
    """One thing less that a job waits for."""
    state.missing[job] -= 1
    if state.missing[job] == 0:
        make_ready(plan, state, site, job, now)


@kernel
def make_ready(plan: Plan, state: State, site: Ints, job: int, now: float) -> None:
    """Parents are done and files are there: the site's queue takes its time."""
    state.ready[job] = now
    expect(state, job, now + plan.queue[site[job]])


@kernel
def expect(state: State, job: int, at: float) -> None:
    """The job's next event."""
    state.key[job] = at
    state.left[job] = state.right[job] = -1
    state.counts[EVENTS] = join(state.key, state.left, state.right, state.counts[EVENTS], job)


@kernel
def wait_for_worker(plan: Plan, state: State, site: Ints, job: int) -> None:
    """The queue is behind the job, which takes a worker when one is free and it is its turn."""
    here = site[job]
    state.key[job] = plan.rank[job]
    state.left[job] = state.right[job] = -1
    state.queue_root[here] = join(state.key, state.left, state.right, state.queue_root[here], job)
    state.touched[here] = 1


@kernel
def dispatch(plan: Plan, state: State, site: Ints, now: float) -> bool:
    """Free workers take the most urgent of the jobs that wait. Returns whether any job started."""
    started = False
    for here in range(plan.n_sites):
        if state.touched[here] == 1:
            state.touched[here] = 0
            while state.free[here] > 0 and state.queue_root[here] >= 0:
                job = state.queue_root[here]
                state.queue_root[here] = join(
                    state.key, state.left, state.right, state.left[job], state.right[job]
                )
                state.free[here] -= 1
                state.running[job] = 1
                state.start[job] = now
                expect(state, job, now + plan.compute[job * plan.n_sites + here])
                started = True
    return started


@kernel
def finish(plan: Plan, state: State, site: Ints, job: int, now: float) -> None:
    """A job ends: its worker is free, its results set out, its children wait for one job less."""
    here = site[job]
    state.end[job] = now
    state.free[here] += 1
    state.touched[here] = 1
    for i in range(plan.writes_at[job], plan.writes_at[job + 1]):
        send_result(plan, state, site, plan.writes[i], here, now)
    for i in range(plan.children_at[job], plan.children_at[job + 1]):
        meet(plan, state, site, plan.children[i], now)


@kernel
def join(key: Floats, left: Ints, right: Ints, a: int, b: int) -> int:
    """The root of two skew heaps made one; -1 is the empty heap, equal keys go by number."""
    if a < 0:
        return b
    if b < 0:
        return a
    if key[b] < key[a] or (key[b] == key[a] and b < a):
        a, b = b, a
    root = above = a
    a = right[above]
    right[above] = left[above]
    while a >= 0:
        if key[b] < key[a] or (key[b] == key[a] and b < a):
            a, b = b, a
        left[above] = a
        above = a
        a = right[above]
        right[above] = left[above]
    left[above] = b
    return root
