"""The estimator's rules where transfers share a path evenly; ``estimator.py`` tells them.

On each path runs a *clock* that advances by a second while a transfer gets what it would get alone
for a second. With n transfers under way on a path that carries ``room`` of them at full speed it
goes at min(1, room / n). A transfer that takes s seconds alone is done when the clock has advanced
by s, whoever comes and goes meanwhile: its due time never changes, only what the clock shows.
Transfers are numbered as they are asked for; each knows the uses (see ``Order``) that wait for it.
"""

from __future__ import annotations

from site_selector.mapping.kernel import kernel
from site_selector.mapping.kernel_data import Ints, Numbers, Order, Room, Shape, Sharing
from site_selector.mapping.kernel_simulate import (
    EVENTS,
    LAST,
    MOVES,
    WORK,
    begin,
    dispatch,
    enqueue,
    meld,
    pop_event,
    push_event,
    wait_for_worker,
)

NEVER = 1e300


@kernel
def simulate_sharing(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    room: Room,
    sharing: Sharing,
    site: Ints,
    note: bool,
) -> None:
    """Play an assignment through; ``room`` holds what happened, transfers only with ``note``."""
    begin(shape, order, numbers, room, site)
    begin_sharing(shape, sharing)
    share_inputs(shape, order, numbers, room, sharing, note)
    for job in range(shape.n_jobs):
        if room.waiting[job] == 0 and sharing.missing[job] == 0:
            enqueue(shape, numbers, room, job, 0.0)
    now, ending = 0.0, next_ending(sharing)
    while now < NEVER:
        # All that happens at one instant comes before any worker is given out, so that the most
        # urgent of the jobs that become eligible together goes first.
        soonest = now
        while soonest <= now:
            if ending <= now:
                end_transfers(shape, order, numbers, room, sharing, now, note)
            take_events(shape, order, numbers, room, sharing, now, note)
            ending = next_ending(sharing)
            soonest = min(ending, next_event(room))
        for here in range(shape.n_sites):
            if room.touched[here]:
                room.touched[here] = 0
                dispatch(shape, order, numbers, room, here, now)
        room.total[LAST] = max(room.total[LAST], now)
        now = min(ending, next_event(room))


@kernel
def begin_sharing(shape: Shape, sharing: Sharing) -> None:
    """Clear what an earlier simulation left."""
    sharing.n_active[0] = 0
    for path in range(shape.n_places * shape.n_places):
        sharing.first[path] = -1
        sharing.under_way[path] = 0
        sharing.clock[path] = sharing.set_s[path] = 0.0
    for job in range(shape.n_jobs):
        sharing.missing[job] = 0


@kernel
def share_inputs(
    shape: Shape, order: Order, numbers: Numbers, room: Room, sharing: Sharing, note: bool
) -> None:
    """Inputs of the workflow go where they are needed and do not lie."""
    places = shape.n_places
    for i in range(order.n_first_rows * places):
        sharing.number[i] = -1
    for use in range(order.n_first):
        dst = room.site[order.use_job[use]]
        src = order.source[shape.group[order.use_file[use]] * places + dst]
        if src != dst:
            expect(shape, order, numbers, room, sharing, use, src, dst, 0.0, note)


@kernel
def expect(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    room: Room,
    sharing: Sharing,
    use: int,
    src: int,
    dst: int,
    now: float,
    note: bool,
) -> None:
    """A job waits for a file, which is asked for unless it is under way for others."""
    cell = order.use_row[use] * shape.n_places + dst
    if shape.per_job or sharing.number[cell] < 0:
        file = order.use_file[use]
        sharing.number[cell] = ask(shape, numbers, room, sharing, file, src, dst, now, note)
    number = sharing.number[cell]
    sharing.before[use] = sharing.use[number]
    sharing.use[number] = use
    sharing.missing[order.use_job[use]] += 1


@kernel
def ask(
    shape: Shape,
    numbers: Numbers,
    room: Room,
    sharing: Sharing,
    file: int,
    src: int,
    dst: int,
    now: float,
    note: bool,
) -> int:
    """Put a transfer on its path; returns its number."""
    path = src * shape.n_places + dst
    seconds = numbers.size[file] * numbers.per_byte[path]
    number = room.counts[MOVES]
    room.counts[MOVES] = number + 1
    room.total[WORK] += seconds
    if note:
        room.move_file[number] = file
        room.move_src[number] = src
        room.move_dst[number] = dst
        room.move_start[number] = now
    count = sharing.under_way[path]
    if count == 0:
        sharing.active[sharing.n_active[0]] = path
        sharing.n_active[0] += 1
    else:
        passed = now - sharing.set_s[path]
        sharing.clock[path] += passed * speed(numbers, path, count)
    sharing.set_s[path] = now
    sharing.use[number] = -1
    sharing.due[number] = sharing.clock[path] + seconds
    sharing.left[number] = sharing.right[number] = -1
    sharing.first[path] = meld(
        sharing.due, sharing.left, sharing.right, sharing.first[path], number
    )
    sharing.under_way[path] = count + 1
    left = max(0.0, sharing.due[sharing.first[path]] - sharing.clock[path])
    sharing.next_s[path] = now + left / speed(numbers, path, count + 1)
    return number


@kernel
def speed(numbers: Numbers, path: int, count: int) -> float:
    """What a transfer gets of what it would get alone, where ``count`` are under way."""
    if numbers.occupied[path] * count <= numbers.per_byte[path]:
        return 1.0
    return numbers.per_byte[path] / (numbers.occupied[path] * count)


@kernel
def next_event(room: Room) -> float:
    """When something other than the end of a transfer happens next, NEVER where nothing does."""
    return room.when[room.heap[0]] if room.counts[EVENTS] > 0 else NEVER


@kernel
def next_ending(sharing: Sharing) -> float:
    """When a transfer ends next, NEVER where none is under way."""
    found = NEVER
    for k in range(sharing.n_active[0]):
        found = min(found, sharing.next_s[sharing.active[k]])
    return found


@kernel
def end_transfers(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    room: Room,
    sharing: Sharing,
    now: float,
    note: bool,
) -> None:
    """End what has moved by ``now``. It is there a set-up time later."""
    k = 0
    while k < sharing.n_active[0]:
        path = sharing.active[k]
        if sharing.next_s[path] > now:
            k += 1
            continue
        ready = now + numbers.setup[path]
        room.total[LAST] = max(room.total[LAST], ready)
        clock = sharing.due[sharing.first[path]]
        while sharing.first[path] >= 0 and sharing.due[sharing.first[path]] <= clock:
            number = sharing.first[path]
            left, right = sharing.left, sharing.right
            sharing.first[path] = meld(sharing.due, left, right, left[number], right[number])
            sharing.under_way[path] -= 1
            if note:
                room.move_end[number] = now
            if ready > now:
                code = 2 * shape.n_jobs + number
                room.when[code] = ready
                push_event(room.heap, room.counts[EVENTS], room.when, code)
                room.counts[EVENTS] += 1
            else:
                deliver(shape, order, numbers, room, sharing, number, now)
        sharing.clock[path], sharing.set_s[path] = clock, now
        if sharing.under_way[path] > 0:
            rest = sharing.due[sharing.first[path]] - clock
            sharing.next_s[path] = now + rest / speed(numbers, path, sharing.under_way[path])
            k += 1
        else:
            sharing.n_active[0] -= 1
            sharing.active[k] = sharing.active[sharing.n_active[0]]


@kernel
def deliver(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    room: Room,
    sharing: Sharing,
    number: int,
    now: float,
) -> None:
    """The file of a transfer is there for all who wait for it."""
    use = sharing.use[number]
    while use >= 0:
        job = order.use_job[use]
        sharing.missing[job] -= 1
        if sharing.missing[job] == 0 and room.waiting[job] == 0:
            enqueue(shape, numbers, room, job, now)
        use = sharing.before[use]


@kernel
def take_events(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    room: Room,
    sharing: Sharing,
    now: float,
    note: bool,
) -> None:
    """Files are there, jobs have waited T_q, jobs end."""
    n_jobs = shape.n_jobs
    while room.counts[EVENTS] > 0 and room.when[room.heap[0]] <= now:
        code = pop_event(room.heap, room.counts[EVENTS], room.when)
        room.counts[EVENTS] -= 1
        if code < n_jobs:
            finish_sharing(shape, order, numbers, room, sharing, code, now, note)
        elif code < 2 * n_jobs:
            wait_for_worker(room, code - n_jobs)
        else:
            deliver(shape, order, numbers, room, sharing, code - 2 * n_jobs, now)


@kernel
def finish_sharing(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    room: Room,
    sharing: Sharing,
    job: int,
    now: float,
    note: bool,
) -> None:
    """A worker is free again, results move to their readers, children may go on."""
    places, output, here = shape.n_places, shape.output, room.site[job]
    room.free[here] += 1
    room.touched[here] = 1
    for i in range(order.rows[job] * places):
        sharing.number[i] = -1
    for use in range(order.out_at[job], order.out_at[job + 1]):
        dst = room.site[order.use_job[use]]
        if dst != here:
            expect(shape, order, numbers, room, sharing, use, here, dst, now, note)
    if output >= 0 and output != here:
        for k in range(order.returns_at[job], order.returns_at[job + 1]):
            # What a reader at the output site has had moved there need not move again.
            if shape.per_job or sharing.number[order.returns_row[k] * places + output] < 0:
                file = order.returns_file[k]
                ask(shape, numbers, room, sharing, file, here, output, now, note)
    for k in range(order.children_at[job], order.children_at[job + 1]):
        child = order.children[k]
        room.waiting[child] -= 1
        if room.waiting[child] == 0 and sharing.missing[child] == 0:
            enqueue(shape, numbers, room, child, now)
