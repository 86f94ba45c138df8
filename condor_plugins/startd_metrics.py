"""Host metrics as ClassAd attributes: a program for HTCondor's STARTD_CRON.

    startd_metrics.py INTERFACE STATE-FILE

prints ``AdonIoWait`` (fraction of processor time spent waiting for disks since the last run, the
measure of the Montage paper), ``AdonLoad`` (load average of one minute), ``AdonNetRxBps`` and
``AdonNetTxBps`` (bits per second of the interface since the last run) and ``AdonMetricsAt`` (Unix
seconds). A rate that is not known yet, in the first run or after a counter started anew, is left
out: the startd keeps publishing what it was told last. Standard library only, and little of it,
since every startd starts this every few seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time

Counters = dict[str, float]


def parse_cpu(text: str) -> Counters:
    """``cpu_total`` and ``cpu_iowait`` in clock ticks out of ``/proc/stat``."""
    for line in text.splitlines():
        name, *fields = line.split()
        if name == "cpu":
            # user nice system idle iowait irq softirq steal; guest time is part of user time.
            ticks = [float(field) for field in fields[:8]]
            return {"cpu_total": sum(ticks), "cpu_iowait": ticks[4] if len(ticks) > 4 else 0.0}
    return {}


def parse_interface(text: str, interface: str) -> Counters:
    """``rx_bytes`` and ``tx_bytes`` of an interface out of ``/proc/net/dev``."""
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() == interface:
            fields = rest.split()
            return {"rx_bytes": float(fields[0]), "tx_bytes": float(fields[8])}
    return {}


def attributes(before: Counters, now: Counters) -> Counters:
    """ClassAd attributes of the time between two readings (each with ``at`` in Unix seconds)."""

    def grown(counter: str) -> float | None:
        if counter not in before or counter not in now or now[counter] < before[counter]:
            return None
        return now[counter] - before[counter]

    found: Counters = {}
    ticks, waited = grown("cpu_total"), grown("cpu_iowait")
    if ticks and waited is not None:
        found["AdonIoWait"] = min(1.0, waited / ticks)
    seconds = grown("at")
    for name, counter in (("AdonNetRxBps", "rx_bytes"), ("AdonNetTxBps", "tx_bytes")):
        n_bytes = grown(counter)
        if seconds and n_bytes is not None:
            found[name] = 8 * n_bytes / seconds
    if "load" in now:
        found["AdonLoad"] = now["load"]
    found["AdonMetricsAt"] = now["at"]
    return found


def render(values: Counters) -> str:
    """What the startd reads: one attribute a line, and a dash that ends the ad."""
    lines = [f"{name} = {value:.6f}" for name, value in sorted(values.items())]
    return "\n".join([*lines, "-", ""])


def load_state(text: str) -> Counters:
    """The last reading; nothing where the text is not one."""
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(data, dict):
        return {}
    return {k: float(v) for k, v in data.items() if isinstance(v, int | float)}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - fast start
            return file.read()
    except OSError:
        return ""


def main(arguments: list[str]) -> int:
    """Read, print, and keep the reading for the next run."""
    if len(arguments) != 2:
        print("usage: startd_metrics.py INTERFACE STATE-FILE", file=sys.stderr)
        return 2
    interface, state = arguments
    now = {
        "at": time.time(),
        "load": os.getloadavg()[0],
        **parse_cpu(_text("/proc/stat")),
        **parse_interface(_text("/proc/net/dev"), interface),
    }
    sys.stdout.write(render(attributes(load_state(_text(state)), now)))
    new = f"{state}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as file:  # noqa: PTH123 - fast start
        json.dump(now, file)
    os.replace(new, state)  # noqa: PTH105 - fast start
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
