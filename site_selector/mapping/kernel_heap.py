"""Binary heaps as kernels: in place, without allocating."""

from __future__ import annotations

from site_selector.mapping.kernel import kernel
from site_selector.mapping.kernel_data import Floats, Ints


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
