"""What applications need from the network: look at templates, save them, find the right one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adon.cli.options import answered, client
from adon.cli.output import duration, table
from adon.cli.parsing import Nouns, add_broker, add_command, add_noun, whole
from network_provisioner.base.errors import InputError
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import format_rate, format_size

_LIST = """List all templates: what each needs at least, may have at most, and has reached so far.

'origin' is where the version that stands now comes from: built in, adon.yml, or saved.
"""
_SHOW = """Show one template: its figures, where they come from, and what transfers taught."""
_SHOW_MORE = """
Example:
  adon template show soykb
  adon template show soykb --version 1 --json
"""
_SAVE = """Save a template: from a transfer that succeeded, from a file, or an old version again.

Each saving is a new version; transits that run keep the one they were decided with. What the site
does not allow in self-service is lowered, and the answer says so, or is refused.
"""
_SAVE_MORE = """
Examples:
  adon template save neuro --from cli:my-transfer     its rates, tuning, and goodput as the peak
  adon template save neuro --file neuro.yml           the figures as under 'templates' in adon.yml
  adon template save neuro --version 2                the figures of version 2 again
"""
_MATCH = """Find the template for an application and what it asks for, and say why.

First the template of the application's name, then one with a pattern for it, then the nearest
specification. One that cannot serve what is asked for is passed over.
"""
_MATCH_MORE = """
Examples:
  adon template match soykb::bwa_mem:1.0
  adon template match --min '300 Mb/s' --max-delay '100 ms'

Exit codes: 0 found one; 1 found none; 2 refused or no broker.
"""
_HISTORY = """List every version of a template, oldest first, with who made it of what."""
_DELETE = (
    """Forget what was saved under a name. What is built in or configured stands there again."""
)
_RESET = """Forget what transfers taught a template: its peak and the tuning that goes with it.

A researcher's own alone; an engineer's reset is for all. The next transfers teach it anew.
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon template list|show|save|match|history|reset|delete``."""
    verbs = add_noun(nouns, "template", __doc__)
    add_broker(add_command(verbs, "list", _LIST, _list, "Example:\n  adon template list"))
    show = add_command(verbs, "show", _SHOW, _show, _SHOW_MORE)
    _add_name(show)
    show.add_argument(
        "--version", type=whole(1, 2**31 - 1), metavar="N", help="an older one (default: newest)"
    )
    add_broker(show)
    save = add_command(verbs, "save", _SAVE, _save, _SAVE_MORE)
    save.add_argument("name", metavar="NAME", help="letters, digits and . _ -")
    source = save.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--from", dest="transit", metavar="TRANSIT", help="the id of a transit that succeeded"
    )
    source.add_argument("--file", type=Path, metavar="FILE", help="a template in YAML or JSON")
    source.add_argument(
        "--version", type=whole(1, 2**31 - 1), metavar="N", help="a version of its history"
    )
    add_broker(save)
    match = add_command(verbs, "match", _MATCH, _match, _MATCH_MORE)
    match.add_argument(
        "application", metavar="APPLICATION", nargs="?", default="",
        help="a workflow or transformation, such as soykb or soykb::bwa_mem:1.0",
    )  # fmt: skip
    for option, meaning in (
        ("min", "least bandwidth that is useful, such as '100 Mb/s'"),
        ("max", "most bandwidth"),
        ("max-delay", "longest round trip, such as '100 ms'"),
        ("max-jitter", "most jitter, such as '5 ms'"),
    ):
        match.add_argument(f"--{option}", metavar="VALUE", help=meaning)
    match.add_argument("--max-loss", type=float, metavar="FRACTION", help="most loss, such as 0.01")
    add_broker(match)
    history = add_command(
        verbs, "history", _HISTORY, _history, "Example:\n  adon template history soykb"
    )
    _add_name(history)
    add_broker(history)
    reset = add_command(verbs, "reset", _RESET, _reset, "Example:\n  adon template reset soykb")
    _add_name(reset)
    add_broker(reset)
    delete = add_command(
        verbs, "delete", _DELETE, _delete, "Example:\n  adon template delete neuro"
    )
    _add_name(delete)
    add_broker(delete)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="as 'adon template list' shows it")


def _list(args: argparse.Namespace) -> int:
    found = client(args).templates()
    return answered(args, "template", found, lambda: listed(found))


def _show(args: argparse.Namespace) -> int:
    return _print(args, client(args).template(args.name, args.version))


def _save(args: argparse.Namespace) -> int:
    broker = client(args)
    if args.transit is not None:
        found = broker.save_template_from(args.name, args.transit)
    elif args.version is not None:
        found = broker.restore_template(args.name, args.version)
    else:
        found = broker.save_template(args.name, _read(args.file))
    return _print(args, found)


def _read(file: Path) -> dict[str, Any]:
    from adon.config.yamlfile import read_yaml
    from network_provisioner.templates.data import template_from_dict

    data = read_yaml(file)
    try:
        template_from_dict(file.stem, data)  # refused here, it names the file
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return dict(data)


def _match(args: argparse.Namespace) -> int:
    query = {
        "application": args.application,
        "min_throughput": args.min,
        "max_throughput": args.max,
        "max_delay": args.max_delay,
        "max_jitter": args.max_jitter,
        "max_loss": args.max_loss,
    }
    found = client(args).match_template({k: v for k, v in query.items() if v is not None})
    answered(args, "match", found, lambda: _matched(found))
    return 0 if found.get("entry") else 1


def _matched(found: Mapping[str, Any]) -> str:
    first = [listed([found["entry"]])] if found["entry"] else []
    others = (f"passed over: {name} {why}" for name, why in found["passed_over"].items())
    return "\n".join((*first, found["reason"], *others))


def _history(args: argparse.Namespace) -> int:
    found = client(args).template_history(args.name)
    return answered(args, "history", found, lambda: versions(found))


def _reset(args: argparse.Namespace) -> int:
    return _print(args, client(args).reset_template(args.name))


def _delete(args: argparse.Namespace) -> int:
    left = client(args).delete_template(args.name)

    def text() -> str:
        if left is None:
            return f"template {args.name} is forgotten; its history stays"
        origin = left["origin"]
        which = "built-in template" if origin == "built in" else f"template of {origin}"
        return f"the {which} stands there again\n{listed([left])}"

    return answered(args, "template", left, text)


def _print(args: argparse.Namespace, found: dict[str, Any]) -> int:
    return answered(args, "template", found, lambda: described(found))


_HEAD = ("template", "version>", "origin", "needs>", "may have>", "priority>", "peak>", "for")

_MEANWHILE = {
    "wait": "waits for its path",
    "defer": "is put off by DAGMan",
    "best_effort": "goes without one",
}
_SMALL = {"best_effort": "goes without a path", "share": "shares a standing one"}
_VERSIONS = ("version>", "at", "origin", "made of", "needs>", "may have>")


def listed(entries: Sequence[Mapping[str, Any]]) -> str:
    """A line for each template."""
    return table(_HEAD, [_row(entry) for entry in entries])


def versions(found: Sequence[Mapping[str, Any]]) -> str:
    """A line for each version of one template."""
    return table(_VERSIONS, [_version(version) for version in found])


def described(entry: Mapping[str, Any]) -> str:
    """All figures of a template, a line each, and what was lowered for the site's policy."""
    figures = table(("", ""), [(key, value) for key, value in _figures(entry) if value])
    return "\n".join((figures.lstrip("\n "), *entry["lowered"]))


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    t = entry["template"]
    return (
        entry["name"],
        str(entry["version"]),
        _origin(entry),
        format_rate(t["qspec"]["min_throughput"]),
        _most(t),
        str(t["priority"]),
        format_rate(t["peak"]) if t["peak"] else "-",
        _shortened(t["applications"]),
    )


def _version(found: Mapping[str, Any]) -> tuple[str, ...]:
    entry = found["entry"]
    when = (str(found["version"]), local_time(found["at"]))
    if entry is None:
        return (*when, "deleted", "", "", "")
    t = entry["template"]
    rates = (format_rate(t["qspec"]["min_throughput"]), _most(t))
    return (*when, _origin(entry), _source(entry["source"]), *rates)


def _figures(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    t, learned = entry["template"], entry["learned"]
    qspec = t["qspec"]
    best = ""
    if learned:
        tuning = learned["tuning"]
        of = f"{learned['transit']}, " if "transit" in learned else ""
        best = f" ({of}{tuning['streams']} streams, {local_time(learned['at'])})"
    return [
        ("template", f"{entry['name']}, version {entry['version']}, {_origin(entry)}"),
        ("made of", _source(entry["source"])),
        ("for", ", ".join(t["applications"])),
        ("needs at least", format_rate(qspec["min_throughput"])),
        ("at most", ", ".join(_limit(key, qspec[key]) for key in qspec if key.startswith("max_"))),
        ("may have", _most(t)),
        ("weights", ", ".join(f"{metric} {w:.3g}" for metric, w in t["weights"].items())),
        *(
            (f"scores of {metric}", _scores(metric, points))
            for metric, points in t["tables"].items()
        ),
        ("priority", str(t["priority"])),
        ("waits", duration(t["patience"])),
        ("smallest", _smallest(t)),
        ("meanwhile", _MEANWHILE[t["when_queued"]]),
        ("paths", str(t["paths"])),
        ("old after", duration(t["max_age"])),
        ("tuning", _tuning(t["tuning"])),
        ("peak", format_rate(t["peak"]) + best if t["peak"] else ""),
    ]


def _most(t: Mapping[str, Any]) -> str:
    most_bps = t["rspec"].get("max_throughput")
    return "all" if most_bps is None else format_rate(most_bps)


def _smallest(t: Mapping[str, Any]) -> str:
    least = "as computed" if t["break_even"] is None else _size(t["break_even"])
    return f"{least}; what is smaller {_SMALL[t['small']]}"


def _tuning(tuning: Mapping[str, Any]) -> str:
    threads = f", {tuning['threads']} threads" if tuning.get("threads") else ""
    return f"{tuning['streams']} streams of {_size(tuning['buffer'])}{threads}"


def _limit(key: str, value: float) -> str:
    metric = key.removeprefix("max_")
    return f"{metric} {value:g}" if metric == "loss" else f"{metric} {duration(value)}"


def _scores(metric: str, points: list[list[float]]) -> str:
    def words(value: float) -> str:
        if metric == "throughput":
            return format_rate(value)
        return f"{value:g}" if metric == "loss" else duration(value)

    return ", ".join(f"{words(value)} {score:g}" for value, score in points)


def _origin(entry: Mapping[str, Any]) -> str:
    return f"{entry['origin']} by {entry['by']}" if entry["by"] else str(entry["origin"])


def _source(source: Mapping[str, Any]) -> str:
    if "transit" in source:
        return f"transit {source['transit']} ({source['template']} {source['version']})"
    return f"version {source['restored']}" if "restored" in source else ""


def _shortened(patterns: list[str]) -> str:
    more = f" and {len(patterns) - 3} more" if len(patterns) > 3 else ""
    return ", ".join(patterns[:3]) + more


def _size(n_bytes: int) -> str:
    """As people say buffers: 1 MiB, not 1.05 MB."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes and n_bytes % scale == 0:
            return f"{n_bytes // scale} {unit}"
    return format_size(n_bytes)
