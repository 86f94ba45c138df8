"""What property tests share: whatever a program may say in JSON, and settings."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

NAMES = st.text(max_size=8)


def any_json(keys: st.SearchStrategy[str] = NAMES, max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Also numbers that JSON does not have; ``keys`` are those of mappings."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=max_leaves,
    )


shared_fixtures = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
