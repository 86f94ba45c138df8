"""The two jobs of a stretch and their programs, made with Pegasus's own API.

They run where the workflow is submitted from: site ``local`` and HTCondor's local universe, which
needs no slot of a pool that may have none yet. Their POST is a program that always succeeds, so
that the workflow goes on whatever becomes of them, killed ones too. Both stand at the program, for
what a site catalog says of the universe goes before what a job says (tried with the planner).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from Pegasus.api import Job, Namespace, Transformation

from pegasus_hooks.provisioning.levels import Stretch
from pegasus_hooks.provisioning.step import NAMESPACE, PROVISION, RELEASE, Step, to_arguments
from site_selector.inputs import SUBMIT_SITE

_VERSION = "1.0"
_SUCCEEDS = "/bin/true"


@dataclass(frozen=True, slots=True)
class Additions:
    """What is added to the lists of a workflow, as Pegasus writes it."""

    jobs: Sequence[Mapping[str, Any]]
    dependencies: Sequence[Mapping[str, Any]]
    transformations: Sequence[Mapping[str, Any]]


def additions(steps: Sequence[tuple[Stretch, Step]], program: Sequence[str]) -> Additions:
    """Jobs, dependencies and programs for ``steps``. ``program`` is the interpreter and what it is
    told before the arguments of a job."""
    interpreter, *before = program
    jobs: list[dict[str, Any]] = []
    dependencies: list[dict[str, Any]] = []
    for stretch, step in steps:
        for verb, name in ((PROVISION, step.before), (RELEASE, step.after)):
            job = Job(verb, _id=name, namespace=NAMESPACE, version=_VERSION)
            job.add_args(*before, *to_arguments(verb, step))
            job.add_selector_profile(execution_site=SUBMIT_SITE)
            jobs.append(_plain(job))
        dependencies += [{"id": parent, "children": [step.before]} for parent in stretch.after]
        dependencies.append({"id": step.before, "children": list(stretch.first_jobs)})
        dependencies += [{"id": parent, "children": [step.after]} for parent in stretch.last_jobs]
    programs = []
    for verb in (PROVISION, RELEASE):
        found = Transformation(
            verb, namespace=NAMESPACE, version=_VERSION, site=SUBMIT_SITE, pfn=interpreter
        )
        found.add_condor_profile(universe="local")
        found.add_profiles(Namespace.DAGMAN, "POST", "user")
        found.add_profiles(Namespace.DAGMAN, "POST.PATH.user", _SUCCEEDS)
        programs.append(_plain(found))
    return Additions(jobs, dependencies, programs)


def _plain(value: Any) -> Any:
    """Pegasus's objects as dicts, lists and text."""
    if hasattr(value, "__json__"):
        return _plain(value.__json__())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value
