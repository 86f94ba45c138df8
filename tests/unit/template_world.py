"""Templates as Hypothesis draws them, and transits that succeeded."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from made_transit import made_transit

from network_provisioner.base.model import Transit, TransitState
from network_provisioner.templates.template import METRICS

BASE: dict[str, Any] = {
    "qspec": {"min_throughput": "100 Mb/s", "max_delay": "100 ms", "max_loss": 0.01},
    "rspec": {"max_throughput": "1 Gb/s"},
}


def body(low: float, high: float, **more: Any) -> dict[str, Any]:
    """A template's body with its rates in b/s; ``limits`` go into its QSpec."""
    limits = more.pop("limits", {})
    return {
        "qspec": {"min_throughput": low, **limits},
        "rspec": {"max_throughput": high},
        **more,
    }


def succeeded(id: str = "t1", template: str = "mine", goodput: float = 4e8, **more: Any) -> Transit:
    """A transit that had a path, was released and reported what it moved."""
    values: dict[str, Any] = {
        "requested_bps": 2e8,
        "granted_bps": 5e8,
        "max_bps": 6e8,
        "path": ["mu", "s1", "tacc"],
        "installed_at": 10.0,
        "released_at": 20.0,
        "bytes": int(goodput * 10 / 8),
        "seconds": 10.0,
        "goodput_bps": goodput,
        "outcome": "success",
        "priority": 3,
        "state": TransitState.RELEASED,
    }
    return made_transit(id=id, src="mu", dst="tacc", template=template, **{**values, **more})


rates = st.floats(1, 1e15) | st.integers(1, 10**15)
seconds = st.floats(0, 1e9)
_points = st.lists(
    st.tuples(st.floats(0, 1e10), st.floats(0, 10)),
    min_size=1,
    max_size=6,
    unique_by=lambda point: point[0],
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Any valid template body."""
    low, high = sorted((draw(rates), draw(rates)))
    limits: dict[str, Any] = {
        "max_delay": seconds,
        "max_jitter": seconds,
        "max_loss": st.floats(0, 0.99),
    }
    tables: dict[str, Any] = {}
    for metric in METRICS:
        if draw(st.booleans()):
            points = draw(_points)
            scores = sorted((s for _, s in points), reverse=metric != "throughput")
            tables[metric] = list(zip(sorted(v for v, _ in points), scores, strict=True))
    qspec = {"min_throughput": low}
    qspec |= {key: draw(value) for key, value in limits.items() if draw(st.booleans())}
    scored = ["throughput", *tables, *(m for m in METRICS[1:] if f"max_{m}" in qspec)]
    template: dict[str, Any] = {
        "qspec": qspec,
        "rspec": {"max_throughput": high},
        "tables": tables,
        "weights": draw(st.dictionaries(st.sampled_from(scored), st.floats(1e-3, 1e6), min_size=1)),
    }
    more: dict[str, Any] = {
        "version": st.integers(1, 2**53),
        "applications": st.lists(st.text("abcSoyKB*?[]!-_.:", min_size=1, max_size=12), max_size=4),
        "priority": st.integers(0, 1000),
        "patience": seconds,
        "break_even": st.none() | st.integers(0, 2**60),
        "when_queued": st.sampled_from(["wait", "defer", "best_effort"]),
        "small": st.sampled_from(["best_effort", "share"]),
        "better_path": st.sampled_from(["stay", "move"]),
        "max_age": seconds,
        "paths": st.integers(1, 16),
        "tuning": st.fixed_dictionaries(
            {
                "streams": st.integers(1, 1024),
                "buffer": st.integers(0, 2**40),
                "threads": st.integers(0, 1024),
            }
        ),
        "peak": rates,
    }
    if draw(st.booleans()):
        del template["rspec"]
    return template | {key: draw(value) for key, value in more.items() if draw(st.booleans())}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
