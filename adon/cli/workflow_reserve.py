"""``adon workflow reserve``."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.output import duration, print_json
from adon.cli.parsing import Nouns, add_command, add_json

if TYPE_CHECKING:
    from pegasus_hooks.advance.booking import WorkflowReservations
    from pegasus_hooks.advance.listening import AdvanceReservations
    from pegasus_hooks.advance.predict import Prediction, Window

_RESERVE = """Reserve the paths that a planned workflow will need, before it runs.

Plays the planned DAG through with the run times, workers and rates that are believed, and reserves
for every transfer that is worth it, when it will begin. The hooks begin what is reserved for their
job, whenever that comes. Where the hooks' configuration says "ahead": true, their watcher does all
this by itself and corrects it while the workflow runs.
"""
_RESERVE_MORE = """
Examples:
  adon workflow reserve submit/run0001 --dry-run                      the demand, as a table
  adon workflow reserve submit/run0001 --hooks hooks.json             and reserve it
  adon workflow reserve submit/run0001 --hooks hooks.json --start '+10 min'
  adon workflow reserve submit/run0001 --hooks hooks.json --release   give all of it back

Exit codes: 0 done; 1 something waits for room; 2 refused, or no broker.
"""


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon workflow reserve``."""
    parser = add_command(verbs, "reserve", _RESERVE, _run, _RESERVE_MORE)
    parser.add_argument(
        "submit_dir", type=Path, metavar="SUBMIT_DIR", help="what pegasus-plan wrote"
    )
    parser.add_argument(
        "--hooks", type=Path, metavar="FILE",
        help="the hooks' configuration, JSON: the broker, and the archive of measurements",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="adon.yml: archive and network (default: what the catalogs say)",
    )  # fmt: skip
    parser.add_argument(
        "--start", metavar="TIME",
        help="when it will be run: ISO 8601, Unix seconds, or '+10 min' (default: now)",
    )  # fmt: skip
    parser.add_argument(
        "--horizon", default="1 h", metavar="TIME",
        help="reserve nothing that begins later after the start (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="show the demand, reserve nothing")
    parser.add_argument(
        "--release", action="store_true", help="give back what was reserved and has not begun"
    )
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from adon.cli.times import instant_of
    from network_provisioner.base.units import parse_duration
    from pegasus_hooks.advance.booking import CorrectionRules
    from pegasus_hooks.advance.predict import predict

    now = time.time()
    start = max(instant_of(args.start, "--start", now) or now, now)
    rules = CorrectionRules(horizon_s=start - now + parse_duration(args.horizon, "--horizon"))
    ahead = _ahead(args)
    booking = ahead.booking
    if args.release:
        return _release(booking, now, args.json)
    beliefs = ahead.beliefs_of(now)
    found = predict(ahead.dag, beliefs, {}, start)
    if not args.dry_run:
        booking.look()
        # What is kept for each is known once it was asked for, and how long that takes.
        for _ in range(2):
            booking.fit(found.windows, (), now, rules)
    shown = _Shown(booking, found, start, beliefs.note, not args.dry_run)
    if args.json:
        print_json(shown.as_json())
    else:
        print(shown.text())
    return 1 if any(held.waits for held in booking.held.values()) else 0


def _ahead(args: argparse.Namespace) -> AdvanceReservations:
    """Raises InputError."""
    from adon.planning.placement import configured
    from network_provisioner.base.errors import InputError
    from network_provisioner.client import hookconfig
    from network_provisioner.client.hookclient import client_of
    from network_provisioner.client.hookconfig import HookConfig
    from pegasus_hooks.advance.listening import ahead_of

    if args.hooks is None and not args.dry_run:
        raise InputError("found no --hooks, expected the hooks' configuration, or --dry-run")
    archive, topology = (None, None) if args.config is None else configured(args.config)
    config = HookConfig("http://127.0.0.1:8470")
    if args.hooks is not None:
        config = hookconfig.load(args.hooks)
    if config.archive is None and archive is not None:
        config = replace(config, archive=str(archive))
    return ahead_of(args.submit_dir, config, client_of(config), topology)


def _release(booking: WorkflowReservations, now: float, as_json: bool) -> int:
    from pegasus_hooks.advance.booking import Corrections

    booking.look()
    back = list(booking.held.values())
    done = booking.carry_out(Corrections(back=back), now)
    if as_json:
        print_json({"given_back": done.back})
    else:
        print(f"{done.back} given back" if done.back else "nothing is reserved that has not begun")
    return 0


@dataclass(frozen=True)
class _Shown:
    """What is told of it: the demand and, where it was reserved, what became of each transfer."""

    booking: WorkflowReservations
    found: Prediction
    start: float
    note: str
    reserved: bool

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        from pegasus_hooks.advance.predict import demand

        return {
            "start": self.start,
            "end": self.found.end,
            "note": self.note,
            "demand": [
                {
                    "src": s.pair[0],
                    "dst": s.pair[1],
                    "start": s.start,
                    "end": s.end,
                    "transfers": s.transfers,
                    "bytes": s.size_bytes,
                    "bps": s.rate_bps,
                }
                for s in demand(self.found.windows)
            ],
            "transfers": [
                {
                    "job": w.job,
                    "src": w.pair[0],
                    "dst": w.pair[1],
                    "start": w.start,
                    "end": w.end,
                    "bytes": w.size_bytes,
                    "became": self._became(w),
                }
                for w in self.found.windows
            ],
        }

    def text(self) -> str:
        """For people."""
        from adon.cli.output import table
        from network_provisioner.base.units import format_rate, format_size
        from pegasus_hooks.advance.predict import demand

        steps = [
            (
                *s.pair,
                self._after(s.start),
                self._after(s.end),
                str(s.transfers),
                format_size(s.size_bytes),
                format_rate(s.rate_bps),
            )
            for s in demand(self.found.windows)
        ]
        head = ("from", "to", "begins>", "ends>", "transfers>", "bytes>", "rate>")
        lines = [self.note] if self.note else []
        lines.append(table(head, steps) if steps else "nothing moves between sites")
        lines.append(f"expected to end after {duration(max(0.0, self.found.end - self.start))}")
        if self.reserved and steps:
            became = [
                (w.job, *w.pair, self._after(w.start), format_size(w.size_bytes), self._became(w))
                for w in self.found.windows
            ]
            lines += ["", table(("job", "from", "to", "begins>", "bytes>", "became"), became)]
        return "\n".join(lines)

    def _after(self, at: float) -> str:
        return f"+{duration(at - self.start)}"

    def _became(self, window: Window) -> str:
        if not self.reserved:
            return ""
        key = window.job, window.pair
        held = self.booking.held.get(key)
        if held is not None:
            return "waits for room" if held.waits else "reserved"
        return self.booking.declined.get(key, "not worth it, or too far ahead")
