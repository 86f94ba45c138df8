"""What a job's transfers moved between two sites, from the records of ``pegasus-transfer``
(:mod:`monitors.workflows.logs.transferlog`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from monitors.workflows.logs.transferlog import Attempt, parse, read_dir, seconds_of
from monitors.workflows.planned.moves import Moves
from monitors.workflows.planned.transferlist import RELAY, SitePair

__all__ = ["Attempt", "PairResult", "pair_result", "parse", "placed", "read_dir"]


@dataclass(frozen=True, slots=True)
class PairResult:
    """What became of one site pair. ``n_bytes`` is None where a size is known to nobody."""

    n_bytes: int | None
    seconds: float
    files: int
    failed_attempts: int


def placed(attempts: Iterable[Attempt], moves: Moves) -> list[Attempt]:
    """The attempts with the sites that their ends really are at: the tool writes the labels of its
    list, and calls the machine that it relays over ``local`` wherever that is."""

    def site(label: str, url: str) -> str:
        return moves.site if label == RELAY else moves.site_of(label, url)

    return [replace(a, src=site(a.src, a.src_url), dst=site(a.dst, a.dst_url)) for a in attempts]


def pair_result(
    pair: SitePair, attempts: Iterable[Attempt], known: Mapping[str, int]
) -> PairResult:
    """Bytes and seconds of what ``pair`` moved.

    Bytes are those of the record, else the declared size, else ``known`` (by lfn). Files that one
    call of a tool moved share start and duration and count their time once; calls that ran side by
    side count no more than the span from first start to last end.
    """
    # pegasus-transfer writes site labels with "_" for "-".
    ends = (pair.src.replace("-", "_"), pair.dst.replace("-", "_"))
    mine = [a for a in attempts if (a.src.replace("-", "_"), a.dst.replace("-", "_")) == ends]
    done = [a for a in mine if a.success]
    sizes = {t.lfn: t.size_bytes for t in pair.transfers}
    total: int | None = 0
    for lfn, n_bytes in {a.lfn: a.n_bytes for a in done}.items():
        size = n_bytes if n_bytes is not None else sizes.get(lfn)
        size = size if size is not None else known.get(lfn)
        total = None if total is None or size is None else total + size
    return PairResult(total if done else None, seconds_of(done), len(done), len(mine) - len(done))
