"""Operations of a described service, fuzzed from the description."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

# Of each operation and kind: few always, many where there is time.
EXAMPLES = 3
MANY = int(os.environ.get("ADON_FUZZ_EXAMPLES", "100"))


def fuzz(
    operation: Any,
    mode: GenerationMode,
    known: Mapping[str, st.SearchStrategy[Any]],
    sent: Callable[[Any], Any],
    unread: Collection[int],
    examples: int = EXAMPLES,
) -> None:
    """Send what the description allows, or forbids, and compare the answers with it.

    ``known`` are values by name that random text never hits; ``sent(case)`` sends one and gives the
    answer, or fails; ``unread`` are statuses for what is refused before it is looked at.
    """
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    if mode is GenerationMode.NEGATIVE:
        if not (operation.body or operation.query or operation.path_parameters):
            pytest.skip("takes nothing that could be wrong")
        checks.append(negative_data_rejection)

    @given(operation.as_strategy(generation_mode=mode), st.data())
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    def look(case: Any, data: st.DataObject) -> None:
        if mode is GenerationMode.POSITIVE:
            for place in (case.path_parameters, case.query, case.body):
                for key in sorted(place if isinstance(place, dict) else ()):
                    if key in known and data.draw(st.booleans(), f"a known {key}"):
                        place[key] = data.draw(known[key], key)
        answer = sent(case)
        read = answer.status_code not in unread and not _passes_for_right(case.query)
        case.validate_response(
            answer, checks=[c for c in checks if read or c is not negative_data_rejection]
        )

    look()


def _passes_for_right(query: Any) -> bool:
    """Whether something of another type is in it that a query tells as what is right: a list or an
    object as one plain text, or not at all, and a text that reads as a number."""
    values = query.values() if isinstance(query, dict) else ()
    return any(
        len(value) < 2 if isinstance(value, (list, dict)) else _is_number(value) for value in values
    )


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False
