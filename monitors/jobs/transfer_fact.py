"""The measurement ``job_transfer``: what an attempt moved from one site to another."""

from __future__ import annotations

from collections.abc import Sequence

from monitors.jobs.attempts import Attempt
from monitors.measurement import Measurement
from network_provisioner.units import goodput


def transfer_fact(
    attempt: Attempt,
    ends: tuple[str, str],
    key: str,
    workflow: str,
    retry: int,
    *,
    n_bytes: int | None,
    seconds: float | None,
    files: int | None,
    retries: int,
    direction: str,
    tool: str,
    source: str,
    at: float,
    path: Sequence[str] | None = None,
    transit: str = "",
) -> Measurement:
    """``ends``: from where to where; ``key`` tells it from all else that the attempt moved; ``at``:
    when it ended (Unix seconds).

    What nobody knows is None: of ``n_bytes``, and the value is 0 then; of ``seconds`` and
    ``files``; of ``path`` where none was asked for, while an empty one is that of best effort.
    Where bytes or seconds are not known, or are none, there is no goodput.
    """
    return Measurement(
        id=f"job_transfer:{workflow}:{attempt.key}:{key}",
        metric="job_transfer",
        subject=f"{ends[0]}>{ends[1]}",
        value=float(n_bytes or 0),
        unit="byte",
        at=at,
        source=source,
        workflow=workflow,
        details={
            "job": attempt.job.name,
            "kind": str(attempt.job.kind),
            "attempt": attempt.number,
            "retry": retry,
            "bytes": n_bytes,
            "seconds": seconds,
            "goodput_bps": goodput(n_bytes, seconds) if n_bytes and seconds else None,
            "files": files,
            "retries": retries,
            "outcome": str(attempt.outcome),
            "path": None if path is None else list(path),
            "transit": transit,
            "tool": tool,
            "direction": direction,
        },
    )
