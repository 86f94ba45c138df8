"""A replay of many measurements into an archive, by a process that is killed again and again.

    python -m tests.replay PLACE COUNT

records them from the first on, as a monitor does that was started again, and prints how far it is.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from monitors.archive.archive import Archive, Measurement

TOLD_EVERY = 5000
_ROOT = Path(__file__).parents[1]


def events(count: int) -> Iterator[Measurement]:
    """As the jobs of 50 workflows would yield them."""
    for n in range(count):
        yield Measurement(
            f"runtime:wf-{n % 50}:job-{n}",
            "runtime",
            f"soykb::bwa_mem:1.0@site{n % 4}",
            10.0 + n % 7,
            "s",
            1_700_000_000.0 + n,
            "replay",
            f"wf-{n % 50}",
            {"job": f"job-{n}", "bytes_in": 1000},
        )


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was found afterwards. ``lost`` are missing, ``doubled`` there more than once, ``torn``
    not as they were sent; ``missed`` and ``told_twice`` are the same of who followed the feed."""

    kills: int
    lost: int
    doubled: int
    torn: int
    missed: int
    told_twice: int

    @property
    def wrong(self) -> int:
        """All that is not as it should be."""
        return self.lost + self.doubled + self.torn + self.missed + self.told_twice


def replay(place: str, count: int, kills: int, seed: int) -> Replayed:
    """Replay, killed (SIGKILL) ``kills`` times at random points; somebody follows meanwhile."""
    chooser = random.Random(seed)
    numbers: list[int] = []
    done = threading.Event()
    with Archive(place):
        pass  # so that who follows finds it
    following = threading.Thread(target=_follow, args=(place, done, numbers))
    following.start()
    killed = 0
    try:
        for _ in range(kills):
            killed += _run(place, count, chooser.randrange(count), chooser.uniform(0, 0.05))
        _run(place, count, None, 0.0)
    finally:
        done.set()
        following.join()
    expected = {event.id: event for event in events(count)}
    with Archive(place, read_only=True) as archive:
        seen: dict[str, int] = {}
        torn = 0
        seq = 0
        while rows := archive.read_on(seq, (), 20_000)[0]:
            for _, measurement in rows:
                seen[measurement.id] = seen.get(measurement.id, 0) + 1
                torn += measurement != expected.get(measurement.id)
            seq = rows[-1][0]
    return Replayed(
        killed,
        sum(key not in seen for key in expected),
        sum(times - 1 for times in seen.values()),
        torn,
        count - len(set(numbers)),
        len(numbers) - len(set(numbers)),
    )


def _follow(place: str, done: threading.Event, numbers: list[int]) -> None:
    with Archive(place, read_only=True) as archive:
        seq = 0
        while True:
            last = done.is_set()
            rows, seq = archive.read_on(seq, (), 20_000)
            numbers.extend(number for number, _ in rows)
            if not rows:
                if last:
                    return
                done.wait(0.02)


def _run(place: str, count: int, kill_at: int | None, later_s: float) -> bool:
    """Let it run; whether it was killed, ``later_s`` after it said that it got to ``kill_at``."""
    command = [sys.executable, "-m", "tests.replay", place, str(count)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if kill_at is not None and int(line) >= kill_at:
                threading.Event().wait(later_s)
                os.kill(process.pid, signal.SIGKILL)
                break
        process.stdout.read()
        code = process.wait()
    if code not in (0, -signal.SIGKILL):
        raise AssertionError(f"the replay ended with {code}")
    return code == -signal.SIGKILL


def main() -> None:
    """Called by :func:`replay`."""
    place, count = sys.argv[1], int(sys.argv[2])
    sent, total = events(count), 0
    with Archive(place) as archive:
        while part := list(islice(sent, TOLD_EVERY)):
            archive.record_many(part)
            total += len(part)
            print(total, flush=True)


if __name__ == "__main__":
    main()
