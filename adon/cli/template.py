"""Show, save and match templates, which describe what applications need from the network."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adon.cli.options import client
from adon.cli.output import Column, duration, metric_text, print_records
from adon.cli.parsing import Noun, add_broker, add_output, one_of, option, whole
from adon.cli.terminal import grid
from network_provisioner.base.errors import InputError
from network_provisioner.base.instants import local_time
from network_provisioner.base.units import format_rate, format_size

NOUN = Noun("template", __doc__)
_NAME = option("name", "name, from 'adon template list'", "NAME")
_MEANWHILE = {
    "wait": "waits for its path",
    "defer": "is deferred by DAGMan",
    "best_effort": "goes without one",
}
_SMALL = {"best_effort": "goes without a path", "share": "shares a standing one"}


def _revision(meaning: str) -> Any:
    return option("--revision", meaning, "N", whole(1, 2**31 - 1))


@NOUN.verb("list", add_broker, add_output)
def _list(args: argparse.Namespace) -> int:
    """List all templates with their minimum, maximum, and highest goodput so far.

    'origin' is the source of the current version: built in, adon.yml, or saved.

    Example:
      adon template list
    """
    return print_records(args, _COLUMNS, client(args).templates())


@NOUN.verb(
    "show", _NAME, _revision("an older version (default: the newest)"), add_broker, add_output
)
def _show(args: argparse.Namespace) -> int:
    """Show a template: its values, where they come from, and what ADON learned from transfers.

    Example:
      adon template show soykb
      adon template show soykb --revision 1 --json
    """
    return _print_one(args, client(args).template(args.name, args.revision))


@NOUN.verb(
    "save",
    option("name", "name: letters, digits and . _ -", "NAME"),
    one_of(
        option("--transit", "id of a successful transit", "ID"),
        option("--file", "a template in YAML or JSON", "FILE", Path),
        _revision("version of its history"),
        required=True,
    ),
    add_broker,
    add_output,
)
def _save(args: argparse.Namespace) -> int:
    """Save a template from a successful transfer, a file, or an older version.

    This creates a new version; running transits keep theirs. Values above 'template_policy' of
    adon.yml are lowered, which the answer says, or refused.

    Examples:
      adon template save neuro --transit my-transfer         its rates, tuning and goodput
      adon template save neuro --file neuro.yml              keys as in adon.yml
      adon template save neuro --revision 2                   restore version 2
    """
    broker = client(args)
    if args.transit is not None:
        template = broker.save_template_from(args.name, args.transit)
    elif args.revision is not None:
        template = broker.restore_template(args.name, args.revision)
    else:
        template = broker.save_template(args.name, _read(args.file))
    return _print_one(args, template)


def _read(file: Path) -> dict[str, Any]:
    from adon.config.yamlfile import read_yaml
    from network_provisioner.templates.data import template_from_dict

    data = read_yaml(file)
    try:
        template_from_dict(file.stem, data)  # refused here, it names the file
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return dict(data)


@NOUN.verb(
    "match",
    option(
        "application", "workflow or transformation, such as soykb or soykb::bwa_mem:1.0",
        "APPLICATION", nargs="?", default="",
    ),
    option("--min", "minimum bandwidth, such as '100 Mb/s'", "RATE"),
    option("--max", "maximum bandwidth", "RATE"),
    option("--max-delay", "longest round trip, such as '100 ms'", "TIME"),
    option("--max-jitter", "highest jitter, such as '5 ms'", "TIME"),
    option("--max-loss", "highest loss, such as 0.01", "FRACTION", float),
    add_broker,
    add_output,
)  # fmt: skip
def _match(args: argparse.Namespace) -> int:
    """Show which template a request would get, and why.

    The broker tries the application's name, then patterns, then the nearest values. It skips
    templates that cannot serve the request.

    Examples:
      adon template match soykb::bwa_mem:1.0
      adon template match --min '300 Mb/s' --max-delay '100 ms'

    Exit codes: 0 a template matches; 1 none does; 2 refused or no broker.
    """
    query = {
        "application": args.application,
        "min_throughput": args.min,
        "max_throughput": args.max,
        "max_delay": args.max_delay,
        "max_jitter": args.max_jitter,
        "max_loss": args.max_loss,
    }
    matched = client(args).match_template({k: v for k, v in query.items() if v is not None})

    def text(shown: str) -> str:
        first = [shown] if matched["entry"] else []
        others = (f"skipped: {name} {why}" for name, why in matched["passed_over"].items())
        return "\n".join((*first, matched["reason"], *others))

    entries = [matched["entry"]] if matched.get("entry") else []
    print_records(args, _COLUMNS, entries, document=matched, text=text)
    return 0 if entries else 1


@NOUN.verb(
    "try",
    option("name", "name of a template, new or not", "NAME"),
    option("--file", "other values for it, in YAML or JSON", "FILE", Path),
    option("--limit", "how many transfers (default: 10)", "N", whole(1, 100), default=10),
    option("--of", "only transfers that had this template", "NAME"),
    add_broker,
    add_output,
)
def _try(args: argparse.Namespace) -> int:
    """Show what a template would have chosen for your last transfers.

    The broker scores their paths again, with the free bandwidth and measurements of that time. It
    saves and reserves nothing.

    Examples:
      adon template try soykb
      adon template try soykb --file changed.yml --of soykb
    """
    body = None if args.file is None else _read(args.file)
    trials = client(args).try_template(args.name, body, args.limit, args.of)
    different = sum(trial["differs"] for trial in trials)

    def text(shown: str) -> str:
        others = "\n".join(f"{t['id']}: {t['why']}" for t in trials if t["differs"])
        figures = f"{different} of {len(trials)} would take another path"
        return "\n".join(filter(None, (shown, figures, others)))

    return print_records(args, _TRIALS, trials, text=text)


@NOUN.verb("history", _NAME, add_broker, add_output)
def _history(args: argparse.Namespace) -> int:
    """List all versions of a template, oldest first, with author and source.

    Example:
      adon template history soykb
    """
    return print_records(args, _VERSIONS, client(args).template_history(args.name))


@NOUN.verb("reset", _NAME, add_broker, add_output)
def _reset(args: argparse.Namespace) -> int:
    """Reset what a template learned from transfers: its peak and the tuning of that transfer.

    A researcher resets only their own results, an engineer everybody's. Later transfers set a new
    peak.

    Example:
      adon template reset soykb
    """
    return _print_one(args, client(args).reset_template(args.name))


@NOUN.verb("delete", _NAME, add_broker, add_output)
def _delete(args: argparse.Namespace) -> int:
    """Delete the saved versions of a template. A built-in or configured one applies again.

    Example:
      adon template delete neuro
    """
    left = client(args).delete_template(args.name)

    def text(shown: str) -> str:
        if left is None:
            return f"template {args.name} is deleted; its history stays"
        origin = left["origin"]
        which = "built-in template" if origin == "built in" else f"template of {origin}"
        return f"the {which} applies again\n{shown}"

    entries = [] if left is None else [left]
    return print_records(args, _COLUMNS, entries, document=left, text=text)


def _print_one(args: argparse.Namespace, template: dict[str, Any]) -> int:
    return print_records(
        args,
        _COLUMNS,
        [template],
        document=template,
        text=lambda _: template_text(template),
    )


def template_text(entry: Mapping[str, Any]) -> str:
    """All figures of a template, one line each, and what was lowered for the site's policy."""
    figures = grid(("", ""), [(key, value) for key, value in _figures(entry) if value])
    return "\n".join((figures.lstrip("\n "), *entry["lowered"]))


def _figures(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    t, learned = entry["template"], entry["learned"]
    qspec = t["qspec"]
    best = ""
    if learned:
        tuning = learned["tuning"]
        of = f"{learned['transit']}, " if "transit" in learned else ""
        best = f" ({of}{tuning['streams']} streams, {local_time(learned['at'])})"
    return [
        (
            "template",
            f"{entry['name']}, version {entry['version']}, "
            + _origin(entry["origin"], entry["by"]),
        ),
        ("made of", _source(entry["source"])),
        ("for", ", ".join(t["applications"])),
        ("needs at least", format_rate(qspec["min_throughput"])),
        ("at most", ", ".join(_limit(key, qspec[key]) for key in qspec if key.startswith("max_"))),
        ("may have", _most(t["rspec"])),
        ("weights", ", ".join(f"{metric} {w:.3g}" for metric, w in t["weights"].items())),
        *(
            (f"scores of {metric}", _scores(metric, points))
            for metric, points in t["tables"].items()
        ),
        ("scores learned", _scores("throughput", entry["reached"])),
        ("priority", str(t["priority"])),
        ("waits", duration(t["patience"])),
        ("triggers", ", ".join(_trigger(*item) for item in t["triggers"].items())),
        ("smallest", _smallest(t)),
        ("meanwhile", _MEANWHILE[t["when_queued"]]),
        ("paths", str(t["paths"])),
        ("old after", duration(t["max_age"])),
        ("tuning", _tuning(t["tuning"])),
        ("peak", format_rate(t["peak"]) + best if t["peak"] else ""),
    ]


def _way(path: list[str]) -> str:
    return "-".join(path) or "no path"


def _most(rspec: Mapping[str, Any]) -> str:
    most_bps = rspec.get("max_throughput")
    compute = [", ".join(rspec["sites"])] if rspec.get("sites") else []
    if rspec.get("cores"):
        compute.append(f"{rspec['cores']} cores a site")
    if rspec.get("memory"):
        compute.append(f"{format_size(rspec['memory'])} a core")
    return "; ".join(["all" if most_bps is None else format_rate(most_bps), *compute])


def _trigger(metric: str, trigger: Mapping[str, Any]) -> str:
    limit = trigger["limit"]
    shown = ""
    if limit is not None:
        shown = f" {format_rate(limit)}" if metric == "throughput" else f" {limit:g}"
    return f"{metric}{shown} for {duration(trigger['for'])}: {trigger['action']}"


def _smallest(t: Mapping[str, Any]) -> str:
    least = "as computed" if t["break_even"] is None else _size(t["break_even"])
    return f"{least}; what is smaller {_SMALL[t['small']]}"


def _tuning(tuning: Mapping[str, Any]) -> str:
    threads = f", {tuning['threads']} threads" if tuning.get("threads") else ""
    return f"{tuning['streams']} streams of {_size(tuning['buffer'])}{threads}"


def _limit(key: str, value: float) -> str:
    metric = key.removeprefix("max_")
    return f"{metric} {metric_text(metric, value)}"


def _scores(metric: str, points: list[list[float]]) -> str:
    return ", ".join(f"{metric_text(metric, value)} {score:g}" for value, score in points)


def _origin(origin: str, by: str | None) -> str:
    return f"{origin} by {by}" if by else str(origin)


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


_COLUMNS = (
    Column("name", "template"),
    Column("version", "version>"),
    Column("origin", "origin", _origin, ("by",)),
    Column("template.qspec.min_throughput", "needs>", format_rate),
    Column("template.rspec", "may have>", _most),
    Column("template.priority", "priority>", str),
    Column("template.peak", "peak>", lambda peak: format_rate(peak) if peak else "-"),
    Column("template.applications", "for", _shortened),
)
_TRIALS = (
    Column("id", "transfer"),
    Column("requested_at"),
    Column("then.path", "took", _way),
    Column("then.min_bps", "minimum>", format_rate),
    Column("now.path", "would take", _way),
    Column("now.min_bps", "minimum>", format_rate),
    Column("now.q", "Q>", lambda q: "-" if q is None else f"{q:.2f}"),
    Column("differs", "differs", lambda differs: "yes" if differs else ""),
)
_VERSIONS = (
    Column("version", "version>"),
    Column("at"),
    Column(
        "entry.origin", "origin", lambda o, by: _origin(o, by) if o else "deleted", ("entry.by",)
    ),
    Column("entry.source", "made of", _source),
    Column("entry.template.qspec.min_throughput", "needs>", format_rate),
    Column("entry.template.rspec", "may have>", _most),
)
