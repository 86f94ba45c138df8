"""What ``pegasus-transfer`` logs of its transfers, where it was given no directory for its records
(:mod:`monitors.logs.transferlog`): rounded, and with the two seconds that it waits before the
first.

    … INFO:  Starting transfers - attempt 1
    … INFO:         Between sites local->mu : 1 transfers, 19.0 B transferred in 2 seconds. Rate: …
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BETWEEN = re.compile(
    r"INFO: +Between sites (\S{1,200})->(\S{1,200}) : (\d{1,9}) transfers, (\d{1,5}\.\d) ([KMGT]?)B"
    r" transferred in (\d{1,9}) seconds\."
)
_TRIES = re.compile(r"INFO: +Starting transfers - attempt (\d{1,3})$", re.MULTILINE)
_PREFIXES = ("", "K", "M", "G", "T")


@dataclass(frozen=True, slots=True)
class Summary:
    """What the tool logged of one pair of sites; bytes to three digits or so, times to seconds."""

    src: str
    dst: str
    files: int
    n_bytes: int
    seconds: float
    retries: int


def summaries(text: str) -> list[Summary]:
    """What the log of one run of the tool says at its end; nothing where servers moved the files
    between themselves."""
    tries = [int(found) for found in _TRIES.findall(text)]
    return [
        Summary(
            src=src,
            dst=dst,
            files=int(files),
            n_bytes=round(float(number) * 1024 ** _PREFIXES.index(prefix)),
            seconds=float(seconds),
            retries=max(tries, default=1) - 1,
        )
        for src, dst, files, number, prefix, seconds in _BETWEEN.findall(text)
    ]
