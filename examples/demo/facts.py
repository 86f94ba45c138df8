"""What only the demo knows of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adon.report.document import as_json as report_json
from adon.report.document import finite
from adon.report.run_facts import RunFacts
from examples.scenario import CheckedResult


@dataclass(frozen=True, slots=True)
class MakespanWithoutAdon:
    """Seconds until the end as Pegasus maps a workflow, and moves its data by the default route:
    by its default selector Random (mean of its dice), and by its Heft."""

    random_s: float
    heft_s: float


@dataclass(slots=True)
class DemoFacts(RunFacts):
    """A run of the demo's line.

    ``taught`` is what :func:`site_selector.explain.text` says of the mapping by catalogs alone and
    the one that ran. ``without``: what it would have taken without ADON, by the model; None if
    nobody can say.
    """

    status_records: int = 0
    open_reservations: int = 0
    flows_left: int = 0
    science: CheckedResult = field(default_factory=CheckedResult)
    taught: Mapping[str, Any] = field(default_factory=dict)
    earlier_measurements: int = 0
    without: MakespanWithoutAdon | None = None

    @property
    def moved_jobs(self) -> Sequence[Mapping[str, Any]]:
        """The jobs that measurements moved to another site; none where nothing was measured."""
        return self.taught.get("moved", ()) if self.earlier_measurements else ()

    @property
    def moved_estimates(self) -> Sequence[Mapping[str, Any]]:
        """The estimates that measurements changed, those first that changed most."""
        return self.taught.get("beliefs", ()) if self.earlier_measurements else ()


def as_json(facts: DemoFacts) -> dict[str, Any]:
    """The content of ``report.json``: that of any run, and what only the demo knows."""
    without, earlier = facts.without, facts.earlier_measurements
    added: dict[str, Any] = finite(
        {
            "makespan_without_s": {"random": without.random_s, "heft": without.heft_s}
            if without
            else None,
            "status_records": facts.status_records,
            "open_reservations_at_end": facts.open_reservations,
            "flows_left_on_switches": facts.flows_left,
            "science": dict(facts.science.numbers),
            "earlier_measurements": earlier,
            "changed_by_measurements": {
                "makespan_s": facts.taught.get("makespan_s") if earlier else None,
                "moved": list(facts.moved_jobs),
                "beliefs": list(facts.moved_estimates),
            },
        }
    )
    return report_json(facts) | added
