"""Put provisioning jobs into an abstract workflow, and take them out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.output import print_json
from adon.cli.parsing import Nouns, add_command, add_json, names, whole

if TYPE_CHECKING:
    from pegasus_hooks.provisioning.provisioned import ProvisionedWorkflow, ProvisioningOptions
    from pegasus_hooks.provisioning.step import ProvisioningStep
    from pegasus_hooks.provisioning.wide_levels import WideLevels
    from site_selector.catalogs.documents import Document
    from site_selector.catalogs.entries import ReplicaCatalog

_PROVISION = """Have a workflow enlarge pool and network before its wide levels, and release them.

Puts a job adon::provision before each stretch of levels with many jobs, and adon::release after it;
all else in the file stays as it is written. No job waits for another one that it did not wait for
before. At run time both always succeed: what they cannot get, the workflow does without.
"""
_PROVISION_MORE = """
Examples:
  adon workflow provision montage.yml --config adon.yml --dry-run     what it would do
  adon workflow provision montage.yml --config adon.yml               the pool
  adon workflow provision montage.yml -o out.yml --hooks hooks.json --sites mu,tacc    the network
  adon workflow provision montage.yml --undo                          as it was before
"""
_LEASE = "1h"


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon workflow provision``."""
    parser = add_command(verbs, "provision", _PROVISION, _run, _PROVISION_MORE)
    parser.add_argument(
        "workflow", type=Path, metavar="WORKFLOW", help="abstract workflow (Pegasus 5 YAML)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT",
        help="where to write it (default: in place of WORKFLOW)",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="adon.yml that says how the pool grows (default: the pool stays as it is)",
    )  # fmt: skip
    parser.add_argument(
        "--hooks", type=Path, metavar="FILE",
        help="the hooks' configuration, JSON: the broker to ask for paths (default: none is asked)",
    )  # fmt: skip
    parser.add_argument(
        "--min-width", type=whole(2, 10**9), default=8, metavar="N",
        help="levels with at least so many jobs are wide (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sites", type=names, default=[], metavar="SITE,...",
        help="where jobs may run that name no site: paths go there (default: nobody knows)",
    )  # fmt: skip
    parser.add_argument(
        "--between", default="local", metavar="SITE",
        help="where files are kept between jobs, as pegasus-plan's --staging-site (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--replicas", type=Path, metavar="FILE",
        help="replica catalog (default: inside the workflow, else replicas.yml beside it)",
    )  # fmt: skip
    parser.add_argument(
        "--lease", default=_LEASE, metavar="TIME",
        help="how long pool and paths are kept where nothing releases them (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--undo", action="store_true", help="take out what was put in")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from pegasus_hooks.provisioning.provisioned import program, provisioned
    from site_selector.catalogs.documents import read_document
    from site_selector.catalogs.workflow import WHAT

    document = read_document(args.workflow, WHAT)
    if args.undo:
        return _undo(args, document)
    options = _options(args)
    found = provisioned(document, _replicas(args, document), options, program())
    written = _write(args, document, found.text)
    if args.json:
        print_json(_as_json(found, written))
    else:
        _print(found, options, written)
    return 0


def _undo(args: argparse.Namespace, document: Document) -> int:
    from pegasus_hooks.provisioning.insertion import without

    written = _write(args, document, without(document.text, document.name))
    if args.json:
        print_json({"output": written, "steps": []})
    else:
        print(f"{written}: as it was before" if written else "nothing to take out")
    return 0


def _options(args: argparse.Namespace) -> ProvisioningOptions:
    from adon.cli.quantities import above_0
    from adon.config.adon_yml import load_config
    from network_provisioner.base.errors import InputError
    from network_provisioner.base.units import parse_duration
    from network_provisioner.client import hookconfig
    from pegasus_hooks.provisioning.provisioned import ProvisioningOptions

    if args.config is None and args.hooks is None:
        raise InputError(
            "found neither --config nor --hooks, expected what to enlarge: --config adon.yml for "
            "the pool, --hooks FILE for the network"
        )
    if args.config is not None and load_config(args.config).expansion is None:
        raise InputError(f"{args.config}: found no section 'expansion', expected how pools grow")
    if args.hooks is not None:
        hookconfig.load(args.hooks)
    lease_s = above_0(parse_duration, args.lease, "--lease")
    assert lease_s is not None
    return ProvisioningOptions(
        args.min_width,
        "" if args.hooks is None else str(args.hooks.absolute()),
        "" if args.config is None else str(args.config.absolute()),
        max(1, round(lease_s)),
        tuple(args.sites),
        args.between,
    )


def _replicas(args: argparse.Namespace, document: Document) -> ReplicaCatalog | None:
    from site_selector.catalogs.documents import read_document
    from site_selector.catalogs.entries import replicas_of

    what = "Pegasus 5 replica catalog"
    if args.replicas is not None:
        return replicas_of(read_document(args.replicas, what))
    if "replicaCatalog" in document.root:
        return replicas_of(document, ("replicaCatalog",))
    beside = args.workflow.with_name("replicas.yml")
    return replicas_of(read_document(beside, what)) if beside.exists() else None


def _write(args: argparse.Namespace, document: Document, text: str) -> str:
    """Where it was written; "" where nothing was."""
    from site_selector.wholefile import write_whole

    target = args.output or args.workflow
    if args.dry_run or (args.output is None and text == document.text):
        return ""
    write_whole(target, lambda stream: stream.write(text), "the workflow")
    return str(target)


def _print(found: ProvisionedWorkflow, options: ProvisioningOptions, written: str) -> None:
    if not found.steps:
        print(f"no level has {options.min_width} jobs or more: nothing to provision")
    for stretch, step in found.steps:
        print("\n".join(_told(stretch, step)))
    if options.hooks and not all(step.paths for _, step in found.steps):
        print("no path is asked for where files and jobs are at one site; --sites names others")
    if written:
        print(f"written to {written}")


def _told(stretch: WideLevels, step: ProvisioningStep) -> list[str]:
    from network_provisioner.base.units import format_size

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


def _as_json(found: ProvisionedWorkflow, written: str) -> dict[str, Any]:
    from dataclasses import asdict

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
            for stretch, step in found.steps
        ],
    }
