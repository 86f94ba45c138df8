"""Small sets of measurement tasks."""

from __future__ import annotations

from hypothesis import strategies as st

from monitors.measurements.tasks import Agreement, LinkId, Task

LINKS: tuple[LinkId, ...] = (("a", "s"), ("b", "s"), ("c", "s"), ("s", "t"), ("d", "t"), ("e", "t"))
WAYS = {"a": ("a", "s"), "b": ("b", "s"), "c": ("c", "s"), "d": ("d", "t"), "e": ("e", "t")}
PERIODS = (10, 20, 30, 60)


def between(name: str, src: str, dst: str, **times: int) -> Task:
    """A task between two of the hosts a, b, c (at s) and d, e (at t)."""
    links = {WAYS[src], WAYS[dst]}
    if (src in "abc") != (dst in "abc"):
        links.add(("s", "t"))
    period = times.get("period", 60)
    return Task(
        name, period, times.get("duration", 5), times.get("deadline", period),
        frozenset((src, dst)), frozenset(links), times.get("load", 0),
    )  # fmt: skip


@st.composite
def tasks(draw: st.DrawFn, most: int = 7) -> list[Task]:
    """Any tasks, also such as no network has."""
    found = []
    for number in range(draw(st.integers(0, most))):
        period = draw(st.sampled_from(PERIODS))
        deadline = draw(st.integers(1, period))
        found.append(
            Task(
                f"t{number}",
                period,
                draw(st.integers(1, max(1, deadline // 2))),
                deadline,
                frozenset(draw(st.sets(st.sampled_from("abcde"), max_size=2))),
                frozenset(draw(st.sets(st.sampled_from(LINKS), max_size=3))),
                draw(st.sampled_from((0.0, 1.25, 2.5, 0.5))),
            )
        )
    return found


agreements = st.builds(
    lambda most, at_once: Agreement(
        {},
        {"near": frozenset(LINKS[:3]), "far": frozenset(LINKS[2:])},
        {} if most is None else {"near": most},
        {} if at_once is None else {"far": at_once},
    ),
    st.sampled_from((None, 2.5, 3.75, 4.0)),
    st.sampled_from((None, 1, 2)),
)


def conflicting(one: Task, other: Task) -> bool:
    """They share a host or a link."""
    return bool(one.hosts & other.hosts or one.links & other.links)


def within(agreement: Agreement, running: list[Task]) -> bool:
    """Whether these may run at the same time."""
    for name, links in agreement.domains.items():
        inside = [task for task in running if links & task.links]
        if len(inside) > agreement.at_once.get(name, len(inside)):
            return False
        if sum(task.load_bps for task in inside) > agreement.domain_bps.get(name, 1e9):
            return False
    return True
