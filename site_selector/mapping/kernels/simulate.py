"""The estimator's rules as kernels; ``estimator.py`` tells them and hands the arrays over.

Scalars that change are kept in ``state.total`` and ``state.counts``: a kernel cannot give anything
back but its result. Jobs are numbered by urgency. An event is a job's number when it ends,
``n_jobs`` more when it has waited T_q, and a transfer's number and twice ``n_jobs`` when its file
is there; the last codes are changes of a site's workers (``first_change``). A site that has lost
more workers than were free has fewer than none until jobs end. A transfer that a job waits for with
its worker has a use of -2 minus the job.

On each line (a path, or those that one link bounds) runs a *clock* that advances by a second while
a transfer gets what it would get alone for a second. Each would alone take a share of what the line
carries; where those under way would take more than all, the clock slows down accordingly. A
transfer that takes s seconds alone is done when the clock has advanced by s, whichever of them come
and go meanwhile: its due time never changes, only what the clock shows. Each transfer knows the
uses (see ``Order``) that wait for it.

Files go by *stage jobs*, which take what goes the same path along as one transfer. A stage job is
numbered as the reader whose inputs it brings from other sites; those of inputs of the workflow and
of results that are wanted back follow, by bundle (see ``Order``) and place.
"""

from __future__ import annotations

from site_selector.mapping.kernels.compiled import kernel
from site_selector.mapping.kernels.data import FETCHES, Floats, Ints, Numbers, Order, Shape, State

LAST, WORK = 0, 1  # in state.total
MOVES, EVENTS, ACTIVE, SENT, TOUCHED, CAME = 0, 1, 2, 3, 4, 5  # in state.counts
EARLIER = 4294967296.0  # more than jobs there can be
NEVER = 1e300
OWN = -1  # in the place of a stage job: a transfer for one file and one job


@kernel
def simulate(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    state: State,
    site: Ints,
    note: bool,
) -> None:
    """Play an assignment through; ``state`` holds what happened, transfers only with ``note``."""
    begin(shape, order, numbers, state, site)
    send_inputs(shape, order, numbers, state, note)
    for job in range(shape.n_jobs):
        if state.waiting[job] == 0 and state.missing[job] == 0:
            enqueue(shape, order, numbers, state, job, 0.0)
    now, ending = 0.0, next_ending(state)
    while now < NEVER:
        # All that happens at one instant comes before any worker is given out, so that the most
        # urgent of the jobs that become eligible together goes first.
        soonest = now
        while soonest <= now:
            if ending <= now:
                end_transfers(shape, numbers, state, now, note)
            take_events(shape, order, numbers, state, now, note)
            ending = next_ending(state)
            soonest = min(ending, next_event(state))
        for k in range(state.counts[TOUCHED]):
            dispatch(shape, order, numbers, state, state.touched[k], now, note)
        state.counts[TOUCHED] = 0
        if shape.stages:
            ending = next_ending(state)
        now = min(ending, next_event(state))


@kernel
def begin(shape: Shape, order: Order, numbers: Numbers, state: State, site: Ints) -> None:
    """Clear what an earlier simulation left. It leaves no transfer under way, and what belongs to a
    path or to a stage job is cleared where it is used: there are more of them than are used."""
    state.total[LAST] = state.total[WORK] = 0.0
    state.counts[MOVES] = state.counts[EVENTS] = state.counts[ACTIVE] = state.counts[SENT] = 0
    state.counts[TOUCHED] = state.counts[CAME] = 0
    for here in range(shape.n_sites):
        state.free[here] = numbers.workers[here]
        state.queued_count[here] = state.queued_at[here] = 0
    for job in range(shape.n_jobs):
        here = site[order.by_position[job]]
        state.site[job] = here
        state.place[job] = shape.shared[order.by_position[job] * shape.n_sites + here]
        state.end[job] = NEVER
        state.queued_at[here] += 1
        state.waiting[job] = order.parents[job]
        state.missing[job] = 0
    at = 0
    for here in range(shape.n_sites):
        jobs = state.queued_at[here]
        state.queued_at[here] = at
        at += jobs
    for k in range(len(numbers.change_s)):
        code = first_change(numbers, state) + k
        state.when[code] = numbers.change_s[k]
        push(state.heap, 0, state.counts[EVENTS], state.when, code)
        state.counts[EVENTS] += 1
    plan_stage_jobs(shape, order, state)


@kernel
def first_change(numbers: Numbers, state: State) -> int:
    """The code of the first change of a site's workers."""
    return len(state.when) - len(numbers.change_s)


@kernel
def plan_stage_jobs(shape: Shape, order: Order, state: State) -> None:
    """Stage jobs are empty, and wait for what is written elsewhere."""
    for job in range(shape.n_jobs):
        if not fetches(shape, order, state, job):
            inwards = stage_in(shape, order, state, job)
            outwards = stage_out(shape, order, state, job)
            state.loaded[job] = state.loaded[inwards] = state.loaded[outwards] = -1
            state.coming[job] = state.coming[inwards] = state.coming[outwards] = 0
    for job in range(shape.n_jobs):
        for use in range(order.out_at[job], order.out_at[job + 1]):
            reader = order.use_job[use]
            if state.place[reader] != state.place[job]:
                state.coming[reader] += 1
        if order.returns_at[job] < order.returns_at[job + 1]:
            outwards = stage_out(shape, order, state, job)
            if outwards != OWN:
                state.coming[outwards] += 1


@kernel
def fetches(shape: Shape, order: Order, state: State, job: int) -> bool:
    """Whether a job moves its own files, also those that others moved to its site."""
    return shape.allowed[order.by_position[job] * shape.n_sites + state.site[job]] == FETCHES


@kernel
def stage_inter(shape: Shape, order: Order, state: State, job: int) -> int:
    """The stage job that brings what a job reads from other sites."""
    return OWN if fetches(shape, order, state, job) else job


@kernel
def stage_in(shape: Shape, order: Order, state: State, job: int) -> int:
    """The stage job that brings the inputs of the workflow which a job reads."""
    if fetches(shape, order, state, job):
        return OWN
    return shape.n_jobs + order.bundle[job] * shape.n_places + state.place[job]


@kernel
def stage_out(shape: Shape, order: Order, state: State, job: int) -> int:
    """The stage job that takes back what a job wrote."""
    if fetches(shape, order, state, job):
        return OWN
    bundle = order.n_bundles + order.bundle[job]
    return shape.n_jobs + bundle * shape.n_places + state.place[job]


@kernel
def send_inputs(shape: Shape, order: Order, numbers: Numbers, state: State, note: bool) -> None:
    """Inputs of the workflow go where they are needed and do not lie."""
    places = shape.n_places
    forget(shape, order, state, 0, order.n_first)
    for use in range(order.n_first):
        job = order.use_job[use]
        dst = state.place[job]
        src = order.source[shape.group[order.use_file[use]] * places + dst]
        if src != dst:
            stage = stage_in(shape, order, state, job)
            expect(shape, order, numbers, state, use, stage, src, dst, note)
    for number in range(state.counts[SENT]):
        send(shape, numbers, state, number, 0.0, note)


@kernel
def forget(shape: Shape, order: Order, state: State, first: int, last: int) -> None:
    """No file of these uses moves yet to where it is needed."""
    for use in range(first, last):
        state.number[order.use_row[use] * shape.n_places + state.place[order.use_job[use]]] = -1


@kernel
def expect(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    state: State,
    use: int,
    stage: int,
    src: int,
    dst: int,
    note: bool,
) -> None:
    """A job waits for a file, which its stage job brings unless another one does."""
    cell = order.use_row[use] * shape.n_places + dst
    file = order.use_file[use]
    if stage == OWN:
        number = load(shape, numbers, state, stage, file, src, dst, note)
    else:
        if state.number[cell] < 0:
            state.number[cell] = load(shape, numbers, state, stage, file, src, dst, note)
        number = state.number[cell]
    state.before[use] = state.use[number]
    state.use[number] = use
    state.missing[order.use_job[use]] += 1


@kernel
def load(
    shape: Shape,
    numbers: Numbers,
    state: State,
    stage: int,
    file: int,
    src: int,
    dst: int,
    note: bool,
) -> int:
    """A stage job takes a file along; returns the number of the transfer. ``due`` is how long that
    takes alone, until it is sent."""
    path = src * shape.n_places + dst
    number = -1
    if stage != OWN:
        number = state.loaded[stage]
        while number >= 0 and state.path[number] != path:
            number = state.previous_transfer[number]
    another = number < 0
    number = add(numbers, numbers.setup, state, number, file, path, note)
    if another and stage != OWN:
        state.previous_transfer[number] = state.loaded[stage]
        state.loaded[stage] = number
    return number


@kernel
def add(
    numbers: Numbers, setup: Floats, state: State, number: int, file: int, path: int, note: bool
) -> int:
    """A transfer, a new one where there is none (-1), takes a file along; its number."""
    if number < 0:
        number = state.counts[SENT]
        state.counts[SENT] = number + 1
        state.path[number] = path
        state.use[number] = -1
        state.due[number] = 0.0
        state.later[number] = setup[path]
    else:
        state.later[number] += numbers.further[path]
    seconds = numbers.size[file] * numbers.per_byte[path]
    state.total[WORK] += seconds
    state.due[number] += seconds
    if note:
        state.move_file[state.counts[MOVES]] = file
        state.move_number[state.counts[MOVES]] = number
        state.counts[MOVES] += 1
    return number


@kernel
def leave(shape: Shape, numbers: Numbers, state: State, stage: int, now: float, note: bool) -> None:
    """One of what a stage job waits for is there; with the last of them it goes. A transfer of its
    own, the last one made, goes at once."""
    if stage == OWN:
        send(shape, numbers, state, state.counts[SENT] - 1, now, note)
        return
    state.coming[stage] -= 1
    if state.coming[stage] == 0:
        number = state.loaded[stage]
        while number >= 0:
            send(shape, numbers, state, number, now, note)
            number = state.previous_transfer[number]


@kernel
def send(shape: Shape, numbers: Numbers, state: State, number: int, now: float, note: bool) -> None:
    """Put a transfer on its path."""
    line = shape.line[state.path[number]]
    if note:
        state.sent[number] = now
    if state.under_way[line] == 0:
        state.clock[line] = state.taken[line] = 0.0
        state.active[state.counts[ACTIVE]] = line
        state.counts[ACTIVE] += 1
    else:
        state.clock[line] += (now - state.set_s[line]) / max(1.0, state.taken[line])
    state.set_s[line] = now
    state.due[number] += state.clock[line]
    state.left[number] = state.right[number] = -1
    state.first[line] = meld(state.due, state.left, state.right, state.first[line], number)
    state.under_way[line] += 1
    state.taken[line] += line_share(numbers, state.path[number])
    left = max(0.0, state.due[state.first[line]] - state.clock[line])
    state.next_s[line] = now + left * max(1.0, state.taken[line])


@kernel
def line_share(numbers: Numbers, path: int) -> float:
    """What one transfer alone takes of what its line carries."""
    if numbers.per_byte[path] <= numbers.occupied[path]:
        return 1.0
    return numbers.occupied[path] / numbers.per_byte[path]


@kernel
def next_event(state: State) -> float:
    """When something other than the end of a transfer happens next, NEVER where nothing does."""
    return state.when[state.heap[0]] if state.counts[EVENTS] > 0 else NEVER


@kernel
def next_ending(state: State) -> float:
    """When a transfer ends next, NEVER where none is under way."""
    soonest = NEVER
    for k in range(state.counts[ACTIVE]):
        soonest = min(soonest, state.next_s[state.active[k]])
    return soonest


@kernel
def end_transfers(
    shape: Shape,
    numbers: Numbers,
    state: State,
    now: float,
    note: bool,
) -> None:
    """End what has moved by ``now``. It is there after set-up times."""
    k = 0
    while k < state.counts[ACTIVE]:
        line = state.active[k]
        if state.next_s[line] > now:
            k += 1
            continue
        clock = state.due[state.first[line]]
        while state.first[line] >= 0 and state.due[state.first[line]] <= clock:
            number = state.first[line]
            left, right = state.left, state.right
            state.first[line] = meld(state.due, left, right, left[number], right[number])
            state.under_way[line] -= 1
            state.taken[line] -= line_share(numbers, state.path[number])
            ready = now + state.later[number]
            state.total[LAST] = max(state.total[LAST], ready)
            if note:
                state.arrived[number] = now
            # Never at once: what follows may go over this very line.
            code = 2 * shape.n_jobs + number
            state.when[code] = ready
            push(state.heap, 0, state.counts[EVENTS], state.when, code)
            state.counts[EVENTS] += 1
        state.clock[line], state.set_s[line] = clock, now
        if state.under_way[line] > 0:
            rest = state.due[state.first[line]] - clock
            state.next_s[line] = now + rest * max(1.0, state.taken[line])
            k += 1
        else:
            state.counts[ACTIVE] -= 1
            state.active[k] = state.active[state.counts[ACTIVE]]


@kernel
def deliver(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    state: State,
    number: int,
    now: float,
    note: bool,
) -> None:
    """The file of a transfer is there for all who wait for it."""
    use = state.use[number]
    if use < -1:  # what a job brought or took back itself
        job = -2 - use
        state.missing[job] -= 1
        if state.missing[job] > 0:
            return
        if state.end[job] == NEVER:
            run_job(shape, order, numbers, state, job, now)
        else:
            state.end[job] = now
            finish(shape, order, numbers, state, job, now, note)
        return
    while use >= 0:
        job = order.use_job[use]
        state.missing[job] -= 1
        if state.missing[job] == 0 and state.waiting[job] == 0:
            enqueue(shape, order, numbers, state, job, now)
        use = state.before[use]


@kernel
def take_events(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    state: State,
    now: float,
    note: bool,
) -> None:
    """Files are there, jobs have waited T_q, jobs end."""
    n_jobs = shape.n_jobs
    while state.counts[EVENTS] > 0 and state.when[state.heap[0]] <= now:
        code = pop(state.heap, 0, state.counts[EVENTS], state.when)
        state.counts[EVENTS] -= 1
        if code < n_jobs:
            if not move_own(shape, order, numbers, state, code, False, now, note):
                finish(shape, order, numbers, state, code, now, note)
        elif code < 2 * n_jobs:
            wait_for_worker(state, code - n_jobs)
        elif code >= first_change(numbers, state):
            k = code - first_change(numbers, state)
            state.free[numbers.change_site[k]] += numbers.change_by[k]
            touch(state, numbers.change_site[k])
        else:
            deliver(shape, order, numbers, state, code - 2 * n_jobs, now, note)


@kernel
def finish(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    state: State,
    job: int,
    now: float,
    note: bool,
) -> None:
    """A worker is free again, results move to their readers, children may continue."""
    output, here = shape.output, state.place[job]
    state.total[LAST] = max(state.total[LAST], now)
    state.free[state.site[job]] += 1
    touch(state, state.site[job])
    forget(shape, order, state, order.out_at[job], order.out_at[job + 1])
    for use in range(order.out_at[job], order.out_at[job + 1]):
        reader = order.use_job[use]
        dst = state.place[reader]
        if dst != here:
            stage = stage_inter(shape, order, state, reader)
            expect(shape, order, numbers, state, use, stage, here, dst, note)
            leave(shape, numbers, state, stage, now, note)
    if output >= 0 and output != here and order.returns_at[job] < order.returns_at[job + 1]:
        stage = stage_out(shape, order, state, job)
        for k in range(order.returns_at[job], order.returns_at[job + 1]):
            # Also where a reader has had it moved to the output site: there to scratch space, which
            # is cleaned up.
            load(shape, numbers, state, stage, order.returns_file[k], here, output, note)
            if stage == OWN:
                leave(shape, numbers, state, stage, now, note)
        if stage != OWN:
            leave(shape, numbers, state, stage, now, note)
    for k in range(order.children_at[job], order.children_at[job + 1]):
        child = order.children[k]
        state.waiting[child] -= 1
        if state.waiting[child] == 0 and state.missing[child] == 0:
            enqueue(shape, order, numbers, state, child, now)


@kernel
def enqueue(
    shape: Shape, order: Order, numbers: Numbers, state: State, job: int, now: float
) -> None:
    """Parents are done and files are there: the job waits T_q from now on, behind those of its
    priority that came before."""
    state.ready[job] = now
    state.queue_order[job] = order.priority[job] * EARLIER + state.counts[CAME]
    state.counts[CAME] += 1
    kind = order.by_position[job] * numbers.queue_row
    eligible = now + numbers.queue[kind + state.site[job]]
    if eligible == now:
        wait_for_worker(state, job)
    else:
        code = job + shape.n_jobs
        state.when[code] = eligible
        push(state.heap, 0, state.counts[EVENTS], state.when, code)
        state.counts[EVENTS] += 1


@kernel
def wait_for_worker(state: State, job: int) -> None:
    """The job may take a worker of its site."""
    here = state.site[job]
    push(state.queued, state.queued_at[here], state.queued_count[here], state.queue_order, job)
    state.queued_count[here] += 1
    touch(state, here)


@kernel
def touch(state: State, here: int) -> None:
    """At a site a worker is free or a job waits, perhaps both."""
    state.touched[state.counts[TOUCHED]] = here
    state.counts[TOUCHED] += 1


@kernel
def dispatch(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    state: State,
    here: int,
    now: float,
    note: bool,
) -> None:
    """Free workers take the jobs that wait at a site, by priority."""
    base = state.queued_at[here]
    while state.queued_count[here] > 0 and state.free[here] > 0:
        job = pop(state.queued, base, state.queued_count[here], state.queue_order)
        state.queued_count[here] -= 1
        state.free[here] -= 1
        state.start[job] = now
        if not move_own(shape, order, numbers, state, job, True, now, note):
            run_job(shape, order, numbers, state, job, now)


@kernel
def move_own(
    shape: Shape,
    order: Order,
    numbers: Numbers,
    state: State,
    job: int,
    inwards: bool,
    now: float,
    note: bool,
) -> bool:
    """A job with a worker brings (``inwards``) what it reads itself, and where its files are staged
    elsewhere all else that it reads; or takes there all that it wrote. What goes one path is one
    transfer; whether there is any."""
    if not shape.stages:
        return False
    place, site, which = state.place[job], state.site[job], order.by_position[job]
    first = state.counts[SENT]
    if inwards:
        for slot in range(shape.slots_at[which], shape.slots_at[which + 1]):
            file, src = shape.slot_file[slot], place
            if shape.own[slot]:
                src = order.source[shape.group[file] * shape.n_places + site]
            add_own(shape, numbers, state, first, file, src, site, note)
    else:
        for k in range(shape.writes_at[which], shape.writes_at[which + 1]):
            add_own(shape, numbers, state, first, shape.writes[k], site, place, note)
    state.missing[job] = state.counts[SENT] - first
    for number in range(first, state.counts[SENT]):
        state.use[number] = -2 - job
        send(shape, numbers, state, number, now, note)
    return state.missing[job] > 0


@kernel
def add_own(
    shape: Shape,
    numbers: Numbers,
    state: State,
    first: int,
    file: int,
    src: int,
    dst: int,
    note: bool,
) -> None:
    """A job's own transfer over a path, the one that it has from ``first`` on or a new one, takes a
    file along."""
    if src == dst:
        return
    path = src * shape.n_places + dst
    number = first
    while number < state.counts[SENT] and state.path[number] != path:
        number += 1
    if number == state.counts[SENT]:
        number = -1
    add(numbers, numbers.first, state, number, file, path, note)


@kernel
def run_job(
    shape: Shape, order: Order, numbers: Numbers, state: State, job: int, now: float
) -> None:
    """From now on the job runs."""
    seconds = numbers.compute[order.by_position[job] * shape.n_sites + state.site[job]]
    state.total[WORK] += seconds
    state.end[job] = now + seconds
    state.when[job] = now + seconds
    push(state.heap, 0, state.counts[EVENTS], state.when, job)
    state.counts[EVENTS] += 1


@kernel
def push(heap: Ints, base: int, count: int, key: Floats, value: int) -> None:
    """Add ``value`` to the heap of ``count`` values that begins at ``base``, the least (key[value],
    value) first."""
    at, mine = count, key[value]
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if key[other] < mine or (key[other] == mine and other < value):
            break
        heap[base + at] = other
        at = above
    heap[base + at] = value


@kernel
def pop(heap: Ints, base: int, count: int, key: Floats) -> int:
    """Take the first of ``count`` values; ``count - 1`` are left."""
    first = heap[base]
    last = count - 1
    value = heap[base + last]
    at, below, mine = 0, 1, key[value]
    while below < last:
        other = heap[base + below]
        if below + 1 < last:
            right = heap[base + below + 1]
            if key[right] < key[other] or (key[right] == key[other] and right < other):
                below, other = below + 1, right
        if mine < key[other] or (mine == key[other] and value < other):
            break
        heap[base + at] = other
        at = below
        below = 2 * at + 1
    heap[base + at] = value
    return first


@kernel
def meld(due: Floats, left: Ints, right: Ints, first: int, other: int) -> int:
    """One skew heap of two (Sleator, Tarjan 1986), -1 being the empty one; least (due, number)
    first."""
    root, last = -1, -1
    while first >= 0 and other >= 0:
        if due[other] < due[first] or (due[other] == due[first] and other < first):
            first, other = other, first
        # ``first`` goes to the left of the last, and what it had there to its own right.
        rest = right[first]
        right[first] = left[first]
        left[first] = -1
        if last < 0:
            root = first
        else:
            left[last] = first
        last, first = first, rest
    rest = first if first >= 0 else other
    if last < 0:
        return rest
    left[last] = rest
    return root
