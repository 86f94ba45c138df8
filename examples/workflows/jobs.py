"""Jobs and files of an abstract workflow. Dependencies follow from the files that jobs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from Pegasus.api import File, Job, Workflow

from examples.workflows.catalogs import VERSION

SIZE_ESTIMATE: Final = "adon.size_estimate"
"""Metadata key of a file that a job will make: its expected bytes."""


class Jobs:
    """A workflow that is being built: ``inputs`` are there, with their bytes, and ``size_of``
    estimates those of every other file."""

    def __init__(
        self, name: str, namespace: str, inputs: Mapping[str, int], size_of: Callable[[str], int]
    ) -> None:
        self.workflow = Workflow(name)
        self._namespace = namespace
        self._size_of = size_of
        self._files = {lfn: File(lfn, size=size) for lfn, size in inputs.items()}

    def file(self, lfn: str) -> File:
        """The file of that logical name, with the estimate of its size where it is made here."""
        if lfn not in self._files:
            size = self._size_of(lfn)
            self._files[lfn] = File(lfn).add_metadata({SIZE_ESTIMATE: size})
        return self._files[lfn]

    def job(
        self,
        name: str,
        args: tuple[str | float, ...],
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        publish: bool = False,
        **about: str,
    ) -> None:
        """One job that runs ``name args``; ``publish`` stages its outputs out."""
        job = Job(name, namespace=self._namespace, version=VERSION)
        job.add_args(*args)
        job.add_inputs(*(self.file(lfn) for lfn in reads))
        job.add_outputs(
            *(self.file(lfn) for lfn in writes), stage_out=publish, register_replica=publish
        )
        job.add_metadata(**about)
        self.workflow.add_jobs(job)
