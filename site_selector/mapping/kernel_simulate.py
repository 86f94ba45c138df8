"""The estimator's rules as kernels; ``estimator.py`` tells them and hands the arrays over.

Scalars that change are kept in ``room.total`` and ``room.counts``: a kernel cannot give anything
back but its result. Jobs are numbered by urgency. An event is a job's number when it ends, and
``n_jobs`` more when it has waited T_q.
"""

from __future__ import annotations

from site_selector.mapping.kernel import kernel
from site_selector.mapping.kernel_data import Floats, Ints, Numbers, Order, Room, Shape


@kernel
def push_event(heap: Ints, count: int, when: Floats, code: int) -> None:
    """Add ``code`` to a heap of ``count`` codes, least (when[code], code) first."""
    at, time = count, when[code]
    while at > 0:
        above = (at - 1) >> 1
        other = heap[above]
        if when[other] < time or (when[other] == time and other < code):
            break
        heap[at] = other
        at = above
    heap[at] = code


@kernel
def pop_event(heap: Ints, count: int, when: Floats) -> int:
    """Take the first of ``count`` codes; ``count - 1`` are left."""
    first = heap[0]
    code = heap[count - 1]
    last, time = count - 1, when[code]
    at, below = 0, 1
    while below < last:
        other = heap[below]
        if below + 1 < last:
            right = heap[below + 1]
            if when[right] < when[other] or (when[right] == when[other] and right < other):
                below, other = below + 1, right
        if time < when[other] or (time == when[other] and code < other):
            break
        heap[at] = other
        at = below
        below = 2 * at + 1
    heap[at] = code
    return first


@kernel
def push_number(heap: Ints, base: int, count: int, value: int) -> None:
    """Add ``value`` to the heap of ``count`` numbers that begins at ``base``, the least first."""
    at = count
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if other < value:
            break
        heap[base + at] = other
        at = above
    heap[base + at] = value


@kernel
def pop_number(heap: Ints, base: int, count: int) -> int:
    """Take the least of ``count`` numbers; ``count - 1`` are left."""
    first = heap[base]
    last = count - 1
    value = heap[base + last]
    at, below = 0, 1
    while below < last:
        other = heap[base + below]
        if below + 1 < last and heap[base + below + 1] < other:
            below += 1
            other = heap[base + below]
        if value < other:
            break
        heap[base + at] = other
        at = below
        below = 2 * at + 1
    heap[base + at] = value
    return first


@kernel
def meld(due: Floats, left: Ints, right: Ints, one: int, other: int) -> int:
    """One skew heap of two (Sleator, Tarjan 1986), -1 being the empty one; least (due, number)
    first."""
    root, last = -1, -1
    while one >= 0 and other >= 0:
        if due[other] < due[one] or (due[other] == due[one] and other < one):
            one, other = other, one
        # ``one`` goes to the left of the last, and what it had there to its own right.
        rest = right[one]
        right[one] = left[one]
        left[one] = -1
        if last < 0:
            root = one
        else:
            left[last] = one
        last, one = one, rest
    rest = one if one >= 0 else other
    if last < 0:
        return rest
    left[last] = rest
    return root


LAST, WORK = 0, 1  # in room.total
MOVES, EVENTS = 0, 1  # in room.counts


@kernel
def simulate(
    shape: Shape, order: Order, numbers: Numbers, room: Room, site: Ints, note: bool
) -> None:
    """Play an assignment through; ``room`` holds what happened, transfers only with ``note``."""
    n_jobs, n_sites = shape.n_jobs, shape.n_sites
    heap, when, counts = room.heap, room.when, room.counts
    begin(shape, order, numbers, room, site)
    send_inputs(shape, order, numbers, room, note)
    for job in range(n_jobs):
        if room.waiting[job] == 0:
            enqueue(shape, numbers, room, job, -1.0)
    while counts[EVENTS] > 0:
        now = when[heap[0]]
        # All that happens at one instant comes before any worker is given out, so that the most
        # urgent of the jobs that become eligible together goes first.
        while counts[EVENTS] > 0 and when[heap[0]] == now:
            job = pop_event(heap, counts[EVENTS], when)
            counts[EVENTS] -= 1
            if job < n_jobs:
                finish(shape, order, numbers, room, job, now, note)
            else:
                wait_for_worker(room, job - n_jobs)
        for here in range(n_sites):
            if room.touched[here]:
                room.touched[here] = 0
                dispatch(shape, order, numbers, room, here, now)
        room.total[LAST] = max(room.total[LAST], now)


@kernel
def begin(shape: Shape, order: Order, numbers: Numbers, room: Room, site: Ints) -> None:
    """Clear what an earlier simulation left."""
    room.total[LAST] = room.total[WORK] = 0.0
    room.counts[MOVES] = room.counts[EVENTS] = 0
    for i in range(shape.n_places * shape.n_places):
        room.busy[i] = 0.0
    for here in range(shape.n_sites):
        room.free[here] = numbers.workers[here]
        room.queued_count[here] = room.queued_at[here] = room.touched[here] = 0
    for job in range(shape.n_jobs):
        here = site[order.by_position[job]]
        room.site[job] = here
        room.queued_at[here] += 1
        room.waiting[job] = order.parents[job]
        room.ready[job] = 0.0
    at = 0
    for here in range(shape.n_sites):
        jobs = room.queued_at[here]
        room.queued_at[here] = at
        at += jobs


@kernel
def send_inputs(shape: Shape, order: Order, numbers: Numbers, room: Room, note: bool) -> None:
    """Inputs of the workflow go where they are needed and do not lie."""
    places = shape.n_places
    for i in range(order.n_first_rows * places):
        room.there[i] = -1.0
    for k in range(order.n_first):
        job, file = order.use_job[k], order.use_file[k]
        dst = room.site[job]
        src = order.source[shape.group[file] * places + dst]
        if src != dst:
            cell = order.use_row[k] * places + dst
            if shape.per_job or room.there[cell] < 0:
                room.there[cell] = move(shape, numbers, room, file, src, dst, 0.0, note)
            room.ready[job] = max(room.ready[job], room.there[cell])


@kernel
def move(
    shape: Shape,
    numbers: Numbers,
    room: Room,
    file: int,
    src: int,
    dst: int,
    now: float,
    note: bool,
) -> float:
    """Ask for a transfer at ``now``; returns when the file is there."""
    path = src * shape.n_places + dst
    start = max(now, room.busy[path])
    seconds = numbers.size[file] * numbers.per_byte[path]
    end = start + seconds
    room.busy[path] = start + numbers.size[file] * numbers.occupied[path]
    there = end + numbers.setup[path]
    room.total[WORK] += seconds
    room.total[LAST] = max(room.total[LAST], there)
    if note:
        number = room.counts[MOVES]
        room.counts[MOVES] = number + 1
        room.move_file[number] = file
        room.move_src[number] = src
        room.move_dst[number] = dst
        room.move_start[number] = start
        room.move_end[number] = end
    return there


@kernel
def enqueue(shape: Shape, numbers: Numbers, room: Room, job: int, now: float) -> None:
    """Parents are done: the job is ready when its files are there, and waits T_q from then on."""
    room.ready[job] = max(room.ready[job], now)
    eligible = room.ready[job] + numbers.queue[room.site[job]]
    if eligible == now:
        wait_for_worker(room, job)
    else:
        code = job + shape.n_jobs
        room.when[code] = eligible
        push_event(room.heap, room.counts[EVENTS], room.when, code)
        room.counts[EVENTS] += 1


@kernel
def wait_for_worker(room: Room, job: int) -> None:
    """The job may take a worker of its site."""
    here = room.site[job]
    push_number(room.queued, room.queued_at[here], room.queued_count[here], job)
    room.queued_count[here] += 1
    room.touched[here] = 1


@kernel
def finish(
    shape: Shape, order: Order, numbers: Numbers, room: Room, job: int, now: float, note: bool
) -> None:
    """A worker is free again, results move to their readers, children may go on."""
    places, output, here = shape.n_places, shape.output, room.site[job]
    room.free[here] += 1
    room.touched[here] = 1
    for i in range(order.rows[job] * places):
        room.there[i] = -1.0
    for k in range(order.out_at[job], order.out_at[job + 1]):
        reader = order.use_job[k]
        dst = room.site[reader]
        if dst != here:
            cell = order.use_row[k] * places + dst
            if shape.per_job or room.there[cell] < 0:
                file = order.use_file[k]
                room.there[cell] = move(shape, numbers, room, file, here, dst, now, note)
            room.ready[reader] = max(room.ready[reader], room.there[cell])
    if output >= 0 and output != here:
        for k in range(order.returns_at[job], order.returns_at[job + 1]):
            # What a reader at the output site has had moved there need not move again.
            if shape.per_job or room.there[order.returns_row[k] * places + output] < 0:
                move(shape, numbers, room, order.returns_file[k], here, output, now, note)
    for k in range(order.children_at[job], order.children_at[job + 1]):
        child = order.children[k]
        room.waiting[child] -= 1
        if room.waiting[child] == 0:
            enqueue(shape, numbers, room, child, now)


@kernel
def dispatch(
    shape: Shape, order: Order, numbers: Numbers, room: Room, here: int, now: float
) -> None:
    """Free workers take the most urgent of the jobs that wait at a site."""
    base = room.queued_at[here]
    while room.queued_count[here] > 0 and room.free[here] > 0:
        job = pop_number(room.queued, base, room.queued_count[here])
        room.queued_count[here] -= 1
        room.free[here] -= 1
        seconds = numbers.compute[order.by_position[job] * shape.n_sites + here]
        room.total[WORK] += seconds
        room.start[job] = now
        room.end[job] = now + seconds
        room.when[job] = now + seconds
        push_event(room.heap, room.counts[EVENTS], room.when, job)
        room.counts[EVENTS] += 1
