"""Provision or reserve what a workflow will need."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.options import above_0, instant_of
from adon.cli.output import Column, duration, print_fields, print_records, table
from adon.cli.parsing import (
    CONF,
    DEFAULT_BROKER,
    DRY_RUN,
    EXECUTION_SITES,
    REPLICAS,
    START,
    UNDO,
    WORKFLOW,
    Noun,
    add_output,
    config,
    option,
    whole,
)
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_size, parse_duration

if TYPE_CHECKING:
    from pegasus_hooks.advance.booking import WorkflowReservations
    from pegasus_hooks.advance.listening import AdvanceReservations
    from pegasus_hooks.advance.predict import Prediction, Window
    from pegasus_hooks.provisioning.insertion import ProvisionedWorkflow, ProvisioningOptions
    from pegasus_hooks.provisioning.step import ProvisioningStep
    from pegasus_hooks.provisioning.wide_levels import WideLevels
    from site_selector.catalogs.documents import Document

NOUN = Noun("workflow", __doc__)
_PLANNED = (
    option("submit_dir", "submit directory of pegasus-plan", "SUBMIT_DIR", Path),
    option(
        "--hooks", "the hooks' configuration, JSON (default: that of the planned workflow)",
        "FILE", Path,
    ),
    config("adon.yml: broker, archive and network (default: the catalogs alone)", None),
)  # fmt: skip


@NOUN.verb(
    "provision",
    option("workflow", WORKFLOW, "WORKFLOW", Path),
    option("-o/--output", "output file (default: WORKFLOW itself)", "FILE", Path),
    config("adon.yml, whose section expansion enlarges the pool (default: no pool)", None),
    option(
        "--hooks", "the hooks' configuration, JSON, to reserve paths (default: reserve none)",
        "FILE", Path,
    ),
    option(
        "--min-width", "number of jobs from which a level is wide", "N", whole(2, 10**9), default=8
    ),
    EXECUTION_SITES,
    option("--between", "site that keeps files between jobs", "SITE", default="local"),
    REPLICAS,
    CONF,
    option(
        "--lease", "lifetime of slots and paths that are not released", "TIME",
        default="1h",
    ),
    UNDO,
    DRY_RUN,
    add_output,
)  # fmt: skip
def _provision(args: argparse.Namespace) -> int:
    """Make a workflow enlarge pool and network before its wide levels, and release them afterwards.

    Adds a job adon::provision before consecutive wide levels and a job adon::release after them;
    the rest of the file stays as it is. Both always succeed: if they get no slots or paths, the
    workflow runs as without them. Jobs without a site are assumed to run at --execution-sites.

    Examples:
      adon workflow provision montage.yml --config adon.yml --dry-run     what it would do
      adon workflow provision montage.yml --config adon.yml               the pool
      adon workflow provision montage.yml -o out.yml --hooks hooks.json --execution-sites mu,tacc
      adon workflow provision montage.yml --undo                          as it was before
    """
    from pegasus_hooks.provisioning.insertion import program, provisioned_workflow
    from site_selector.catalogs.documents import parse_document, read_text
    from site_selector.catalogs.sources import Sources
    from site_selector.catalogs.workflow import WHAT, read_workflow
    from site_selector.inputs import known_replicas

    document = parse_document(read_text(args.workflow, WHAT), str(args.workflow), WHAT)
    if args.undo:
        return _undo(args, document)
    options = _options(args)
    sources = Sources(args.workflow, replicas=args.replicas, conf=args.conf)
    replicas = known_replicas(read_workflow(args.workflow, sources.variables), sources)
    workflow = provisioned_workflow(document, replicas, options, program(), sources.variables)
    written = _write(args, document, workflow.text)
    answer = _as_json(workflow, written)
    return print_fields(args, answer["steps"], lambda: _text(workflow, options, written), answer)


def _undo(args: argparse.Namespace, document: Document) -> int:
    from pegasus_hooks.provisioning.insertion import without_provisioning

    written = _write(args, document, without_provisioning(document.text, document.name))
    text = f"{written}: as it was before" if written else "nothing to remove"
    return print_fields(args, [], lambda: text, {"output": written, "steps": []})


def _options(args: argparse.Namespace) -> ProvisioningOptions:
    from adon.config.adon_yml import load_config
    from adon.config.expansion import section_of
    from network_provisioner.client import hookconfig
    from pegasus_hooks.provisioning.insertion import ProvisioningOptions

    if args.config is None and args.hooks is None:
        raise InputError(
            "found neither --config nor --hooks, expected what to enlarge: --config adon.yml for "
            "the pool, --hooks FILE for the network"
        )
    if args.config is not None:
        section_of(load_config(args.config), args.config)
    if args.hooks is not None:
        hookconfig.load(args.hooks)
    lease_s = above_0(parse_duration, args.lease, "--lease")
    assert lease_s is not None
    return ProvisioningOptions(
        args.min_width,
        "" if args.hooks is None else str(args.hooks.absolute()),
        "" if args.config is None else str(args.config.absolute()),
        max(1, round(lease_s)),
        tuple(args.execution_sites or ()),
        args.between,
    )


def _write(args: argparse.Namespace, document: Document, text: str) -> str:
    """Where it was written; "" if nothing was."""
    from site_selector.wholefile import write_whole

    target = args.output or args.workflow
    if args.dry_run or (args.output is None and text == document.text):
        return ""
    write_whole(target, lambda stream: stream.write(text), "the workflow")
    return str(target)


def _text(provisioned: ProvisionedWorkflow, options: ProvisioningOptions, written: str) -> str:
    lines = []
    if not provisioned.steps:
        lines.append(f"no level has {options.min_width} jobs or more: nothing to provision")
    for stretch, step in provisioned.steps:
        lines += _lines(stretch, step)
    if options.hooks and not all(step.paths for _, step in provisioned.steps):
        lines.append(
            "files and jobs are at one site, so no path is reserved; see --execution-sites"
        )
    if written:
        lines.append(f"written to {written}")
    return "\n".join(lines)


def _lines(stretch: WideLevels, step: ProvisioningStep) -> list[str]:
    levels = str(stretch.first)
    if stretch.last != stretch.first:
        levels += f" to {stretch.last}"
    after = ", ".join(stretch.after) or "the start"
    memory = f" and {step.memory_mb} MB" if step.memory_mb else ""
    cores = "1 core" if step.cores == 1 else f"{step.cores} cores"
    lines = [f"level {levels}: {len(stretch.jobs)} jobs, provisioned after {after}"]
    if step.pool:
        lines.append(f"  {step.slots} slots of {cores}{memory}")
    for need in step.paths:
        size = "unknown size" if need.size_bytes is None else format_size(need.size_bytes)
        lines.append(f"  {need.src} to {need.dst}: {size}")
    return lines


def _as_json(provisioned: ProvisionedWorkflow, written: str) -> dict[str, Any]:
    return {
        "output": written,
        "steps": [
            {
                "levels": [stretch.first, stretch.last],
                "jobs": len(stretch.jobs),
                "after": list(stretch.after),
                "slots": step.slots,
                "cores": step.cores,
                "memory_mb": step.memory_mb,
                "bytes": step.bytes,
                "paths": [asdict(need) for need in step.paths],
            }
            for stretch, step in provisioned.steps
        ],
    }


@NOUN.verb(
    "reserve",
    *_PLANNED,
    START,
    option(
        "--horizon", "reserve transfers that begin within this time after the start", "TIME",
        default="1 h",
    ),
    DRY_RUN,
    add_output,
)  # fmt: skip
def _reserve(args: argparse.Namespace) -> int:
    """Reserve the paths that a planned workflow will need, before it runs.

    Simulates the planned DAG with estimated run times, workers and rates, and reserves a path for
    each transfer that gains from one, at its expected start. The reservation begins when the
    transfer's hook requests the path. With "ahead": true in the hooks' configuration, the watcher
    does this itself, and corrects it while the workflow runs.

    --csv and --columns print the demand only.

    Examples:
      adon workflow reserve submit/run0001 --dry-run             the demand, as a table
      adon workflow reserve submit/run0001                       reserve it
      adon workflow reserve submit/run0001 --start '+10 min'     for a run that starts then

    Exit codes: 0 done; 1 something waits for room; 2 refused, or no broker.
    """
    from pegasus_hooks.advance.booking import CorrectionRules
    from pegasus_hooks.advance.predict import predict

    now = time.time()
    start = max(instant_of(args.start, "--start", now) or now, now)
    rules = CorrectionRules(horizon_s=start - now + parse_duration(args.horizon, "--horizon"))
    ahead = _ahead(args, needs_hooks=not args.dry_run)
    booking = ahead.booking
    estimates = ahead.estimates_at(now)
    prediction = predict(ahead.dag, estimates, {}, start)
    if not args.dry_run:
        booking.observe()
        # What is kept for each is known once it was asked for, and how long that takes.
        for _ in range(2):
            booking.fit(prediction.windows, (), now, rules)
    document = _reserved_json(booking, prediction, start, estimates.note, not args.dry_run)
    demand = document["demand"]

    def after(at: float) -> str:
        return f"+{duration(at - start)}"

    def text(shown: str) -> str:
        lines = [estimates.note] if estimates.note else []
        lines.append(shown if demand else "nothing moves between sites")
        lines.append(f"expected to end after {duration(max(0.0, prediction.end - start))}")
        if demand and not args.dry_run:
            lines += ["", table([Column("job"), *between, size, became], document["transfers"])]
        return "\n".join(lines)

    begins = Column("start", "begins>", after)
    between, size = (Column("src", "from"), Column("dst", "to"), begins), Column("bytes", "bytes>")
    became = Column("became")
    columns = (
        *between,
        Column("end", "ends>", after),
        Column("transfers", "transfers>"),
        size,
        Column("bps", "rate>"),
    )
    print_records(args, columns, demand, document=document, text=text)
    return 1 if any(held.waits for held in booking.held.values()) else 0


@NOUN.verb("release", *_PLANNED, add_output)
def _release(args: argparse.Namespace) -> int:
    """Release the reservations of a planned workflow that have not begun.

    Example:
      adon workflow release submit/run0001
    """
    from pegasus_hooks.advance.booking import Corrections

    booking = _ahead(args, needs_hooks=True).booking
    booking.observe()
    back = list(booking.held.values())
    released = booking.carry_out(Corrections(back=back), time.time()).released
    text = f"{released} released" if released else "no reservation that has not begun"
    answer = {"released": released}
    return print_records(args, [Column("released")], [answer], document=answer, text=lambda _: text)


def _ahead(args: argparse.Namespace, needs_hooks: bool) -> AdvanceReservations:
    """Raises InputError."""
    from adon.config.adon_yml import load_config
    from monitors.archive.estimate_sources import LEFT_OUT, EstimateSnapshot
    from network_provisioner.client import hookconfig
    from network_provisioner.client.hookclient import client_of
    from network_provisioner.client.hookconfig import HookConfig
    from network_provisioner.topology.data import topology_from_dict
    from pegasus_hooks.advance.listening import advance_reservations

    args.hooks = args.hooks or _planned_hooks(args.submit_dir)
    if args.hooks is None and needs_hooks:
        raise InputError(
            f"{args.submit_dir}: planned without hooks, expected --hooks FILE, or 'adon workflow "
            "reserve' with --dry-run"
        )
    loaded = None if args.config is None else load_config(args.config)
    topology = None if loaded is None else topology_from_dict(loaded.topology)
    config = HookConfig(DEFAULT_BROKER if loaded is None else loaded.broker_url)
    if args.hooks is not None:
        config = hookconfig.load(args.hooks)
    if config.archive is None and loaded is not None:
        config = replace(config, archive=loaded.broker.archive)
    nobody = None
    if args.hooks is None and loaded is None:
        nobody = EstimateSnapshot(note=f"neither --hooks nor --config: {LEFT_OUT}")
    return advance_reservations(
        args.submit_dir, config, client_of(config), topology, measured=nobody
    )


def _planned_hooks(folder: Path) -> Path | None:
    """The hooks' configuration of our own plan; of another user's, which could send our token to
    any broker, none. Raises InputError."""
    from monitors.workflows.planned.submit_dir import SubmitDir
    from pegasus_hooks.prepost.hookscripts import planned_config

    plan = SubmitDir(folder)
    config = planned_config(plan.dag) if plan.owner == os.geteuid() else None
    return config if config is not None and config.exists() else None


def _reserved_json(
    booking: WorkflowReservations, prediction: Prediction, start: float, note: str, reserved: bool
) -> dict[str, Any]:
    """The demand and, where it was reserved, the result of each transfer."""
    from pegasus_hooks.advance.predict import demand

    def became(window: Window) -> str:
        if not reserved:
            return ""
        key = window.job, window.pair
        held = booking.held.get(key)
        if held is not None:
            return "waits for room" if held.waits else "reserved"
        return booking.declined.get(key, "not worth it, or too far ahead")

    return {
        "start": start,
        "end": prediction.end,
        "note": note,
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
            for s in demand(prediction.windows)
        ],
        "transfers": [
            {
                "job": w.job,
                "src": w.pair[0],
                "dst": w.pair[1],
                "start": w.start,
                "end": w.end,
                "bytes": w.size_bytes,
                "became": became(w),
            }
            for w in prediction.windows
        ],
    }
