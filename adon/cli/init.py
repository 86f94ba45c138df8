"""Make an adon.yml for this network, and try it.

It looks for sites in Pegasus's catalogs and in the pool, for their data transfer nodes in URLs and
DNS, and for switches, links, speeds and the nodes' ports by listening to the switches. It asks for
the rest: names, links that others use too, and who may reach the broker. Then it writes all files
or none, and has a broker grant and release one transit.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.output import note
from adon.cli.parsing import DRY_RUN, Nouns, add_command, catalog, config, flag, option
from network_provisioner.base.errors import AdonError, InputError

if TYPE_CHECKING:
    from adon.config.sections import Config
    from adon.init.plan import Choices, Facts
    from network_provisioner.controllers.openflow.scan import HostPort
    from network_provisioner.topology.discovery import Discovered
    from pegasus_hooks.install.edits import FileEdit

_LOOPBACK, _SWITCHES = "127.0.0.1:8470", "0.0.0.0:6653"
_ALL = ("0.0.0.0", "[::]")
_SERVICE = Path("/etc/adon"), "/var/lib/adon"  # configuration and state of the package
_QUIET = 0.4  # of the time to listen: Open vSwitch tries again after 8 s at most
_TC_S = 20.0
_MORE = """
Point the switches at this machine first. Open vSwitch:
  ovs-vsctl set bridge BRIDGE protocols=OpenFlow13 fail-mode=secure
  ovs-vsctl set-controller BRIDGE tcp:ADDRESS:6653

Examples:
  adon init --sites sites.yml
  adon init --dtn mu=dtn.example.edu --dtn tacc=192.0.2.7 --yes
  adon init --sites sites.yml --reach broker.example.edu:8470

Exit codes: 0 done; 1 you said no, or no transit was granted; 2 nothing was written.
"""
_OPTIONS = (
    config("the file to write"),
    catalog("site"),
    catalog("replica"),
    option("--dtn", "a site and its data transfer node; may be repeated", "SITE=HOST",
           action="append", default=[]),
    option("--switches", "address where the switches connect", "HOST:PORT", default=_SWITCHES),
    option("--listen-for", "how long the switches are waited for", "TIME", default="20 s"),
    option("--switch", "name of a switch (default: s1, s2, …); may be repeated", "DPID=NAME",
           action="append", default=[]),
    option("--shared", "a link that others use too, of which ADON gets half (default: none); may "
           "be repeated", "A-B", action="append", default=[]),
    option("--reach", "where the broker listens; an address that others reach brings tokens and a "
           f"certificate (default: {_LOOPBACK})", "HOST:PORT"),
    option("--exec", "put before tc, where the switches' ports are elsewhere", "COMMAND",
           default="", dest="execute"),
    DRY_RUN,
    flag("--yes", "do not ask: take options and defaults"),
)  # fmt: skip


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon init``."""
    parser = add_command(nouns, "init", __doc__, _run, _MORE)
    for add_to in _OPTIONS:
        add_to(parser)


def _run(args: argparse.Namespace) -> int:
    from adon.config.adon_yml import parse_config
    from adon.init.files import config_edits
    from adon.init.plan import rendered
    from adon.service.wiring import make_controller
    from network_provisioner.topology.data import topology_from_dict
    from pegasus_hooks.install.edits import carry_out, check_writable

    if not (args.yes or args.dry_run or sys.stdin.isatty()):
        raise InputError("standard input is no terminal to ask on, expected --yes or --dry-run")
    facts = _find(args)
    choices, secrets = _choose(args, facts)
    file = args.config.absolute()
    text = rendered(facts, choices)
    import yaml

    parsed = parse_config(yaml.safe_load(text), str(file))
    make_controller(parsed.controller, topology_from_dict(parsed.topology))
    edits = [*secrets, *config_edits(file, text)]
    check_writable(edits)
    print("".join(edit.diff() for edit in edits if edit.needed), end="")
    if args.dry_run:
        print("dry run: nothing was written")
        return 0
    if any(edit.needed for edit in edits) and not _agrees(args, "Write these files?"):
        print("nothing was written")
        return 1
    carry_out(edits)
    if file.parent == _SERVICE[0] and parsed.security.tls is not None:
        _give_to_service(Path(parsed.security.tls.key))
    return _try(file, parsed)


def _give_to_service(key: Path) -> None:
    """Let the package's broker, which is no root, read its key."""
    with suppress(LookupError, PermissionError):  # no package, or no root
        shutil.chown(key, group="adon")
        key.chmod(0o640)


def _find(args: argparse.Namespace) -> Facts:
    """Sites, switches and links. Raises InputError where they are too few."""
    from adon.init import sites as found
    from adon.init.plan import Facts

    pairs = [*found.given_sites(args.dtn), *found.catalog_urls(args.sites, args.replicas)]
    hosts = found.hosts_of_urls(pairs)
    for site in sorted(found.pool_sites()):
        hosts.setdefault(site, [])
    for site in (site for site, names in hosts.items() if not names):
        note(f"site {site}: no data transfer node is known; --dtn {site}=HOST names it")
    sites = found.resolved(hosts, note)
    if len(sites) < 2:
        raise InputError(
            f"found {len(sites)} sites with a data transfer node, expected two at least: "
            "--dtn SITE=HOST, or --sites with Pegasus's site catalog"
        )
    for site, dtns in sites.items():
        print(f"site {site}: {', '.join(dtn.address for dtn in dtns)}")
    addresses = [dtn.address for dtns in sites.values() for dtn in dtns]
    facts = Facts(sites, *_listen(args, addresses))
    macs = found.neighbours()
    for site, dtns in sites.items():
        for dtn in (dtn for dtn in dtns if dtn not in facts.attached.get(site, ())):
            mac = f" (MAC {macs[dtn.address]})" if dtn.address in macs else ""
            note(f"site {site}: {dtn.address}{mac} is at no port of its site; left out")
    if len(facts.attached) < 2:
        raise InputError(
            f"found {len(facts.attached)} sites at ports of switches, expected two at least: each "
            "node has to be in the Ethernet segment of a switch that connects"
        )
    return facts


def _listen(
    args: argparse.Namespace, addresses: Sequence[str]
) -> tuple[Discovered, dict[str, HostPort]]:
    """What the switches say, until every node is found and joined to all others, at most as long
    as told."""
    from network_provisioner.base.fields import format_dpid
    from network_provisioner.base.units import parse_duration
    from network_provisioner.controllers.openflow.scan import Scan, joins

    listen_s = parse_duration(args.listen_for, "--listen-for")
    print(f"listening for switches on {args.switches}, at most {listen_s:g} s", flush=True)
    try:
        with Scan(args.switches) as scan:
            until = time.monotonic() + listen_s
            while True:
                if not scan.settle(until, _QUIET * listen_s):
                    raise InputError(
                        f"no switch connected to {args.switches} within {listen_s:g} s, expected "
                        "some: set their controller to this machine (adon init --help)"
                    )
                network = scan.discover()
                hosts = scan.find_hosts(network, addresses)
                complete = hosts.keys() >= set(addresses) and joins(network, hosts)
                if complete or time.monotonic() >= until:
                    break
    except AdonError as error:
        raise InputError(str(error)) from None
    for dpid, ports in sorted(network.ports.items()):
        print(f"switch {format_dpid(dpid)}: ports {', '.join(p.name for p in ports.values())}")
    print(f"links between switches: {len(network.links)}")
    return network, hosts


def _choose(args: argparse.Namespace, facts: Facts) -> tuple[Choices, list[FileEdit]]:
    """What people say of it, and the files with secrets that follow from that. Raises
    InputError."""
    from adon.config.sections import split_address
    from adon.config.security import is_loopback
    from adon.init.files import secret_edits
    from adon.init.plan import Choices, default_names, link_name, topology_section
    from network_provisioner.base.fields import dpid as read_dpid
    from network_provisioner.base.fields import format_dpid

    before = _before(args.config)
    names = default_names(facts.network, before.topology if before else {})
    for text in args.switch:
        number, equal, name = text.partition("=")
        dpid = read_dpid(number, "--switch")
        if not equal or dpid not in names:
            dpids = ", ".join(map(format_dpid, names))
            raise InputError(f"--switch: found {text!r}, expected DPID=NAME with one of {dpids}")
        names[dpid] = name
    given = {text.partition("=")[0] for text in args.switch}
    for dpid in names:
        if not given:
            names[dpid] = _ask(args, f"name of switch {format_dpid(dpid)}", names[dpid])
    draft = Choices(names, args.switches)
    links = [
        link_name(link)
        for link in topology_section(facts, draft)[0]["links"]
        if link["layer"] != "lan"
    ]
    for name in args.shared:
        if name not in links:
            raise InputError(f"--shared: found {name!r}, expected one of {', '.join(links)}")
    shared = set(args.shared)
    if not shared:
        shared = {
            name
            for name in links
            if _ask(args, f"is link {name} for ADON alone", "yes")[:1].lower() != "y"
        }
    reach = args.reach or _ask(
        args,
        "address of the broker (others reach it unless it is loopback)",
        before.broker.listen if before else _LOOPBACK,
    )
    host, _ = split_address(reach, "--reach")
    if host in _ALL:
        raise InputError(f"--reach: found {reach}, expected the name or address that others use")
    secure = not is_loopback(host)
    edits: list[FileEdit] = []
    tokens: list[dict[str, Any]] = []
    if secure:
        edits, tokens = secret_edits(
            args.config.absolute().parent, facts.attached, f"https://{reach}", host.strip("[]")
        )
    execute = shlex.split(args.execute)
    of_package, state = _SERVICE
    choices = Choices(
        names, args.switches, reach, frozenset(shared), _devices(facts.network, execute), execute,
        secure, state if args.config.absolute().parent == of_package else "", tokens,
    )  # fmt: skip
    return choices, edits


def _before(file: Path) -> Config | None:
    """The configuration that is there, where it can be used."""
    from adon.config.adon_yml import load_config

    with suppress(AdonError):
        return load_config(file)
    return None


def _devices(network: Discovered, execute: Sequence[str]) -> frozenset[str]:
    """Those ports of the switches that ``tc`` reaches as devices."""

    def reached(device: str) -> bool:
        words = [*execute, "tc", "qdisc", "show", "dev", device]
        try:
            done = subprocess.run(words, capture_output=True, check=False, timeout=_TC_S)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    names = {port.name for ports in network.ports.values() for port in ports.values()}
    return frozenset(filter(reached, names))


def _ask(args: argparse.Namespace, what: str, default: str) -> str:
    if args.yes or args.dry_run:
        return default
    print(f"{what} [{default}]: ", end="", flush=True)
    return sys.stdin.readline().strip() or default


def _agrees(args: argparse.Namespace, question: str) -> bool:
    return args.yes or _ask(args, question, "no")[:1].lower() == "y"


def _try(file: Path, parsed: Config) -> int:
    from adon.init.trial import try_transit

    print(f"{file}: written; trying one transit", flush=True)
    try:
        transit = try_transit(file, parsed)
    except AdonError as error:
        note(f"{error}; 'adon doctor --config {file}' says more")
        return 1
    request = transit.request
    print(
        f"transit {request.src} to {request.dst}: granted on {' > '.join(transit.grant.path)}, "
        "and released"
    )
    print(f"next: adon broker --config {file}")
    print("  or, from a package: systemctl enable --now adon-broker")
    if parsed.security.tls is not None:
        print(f"  commands need ADON_BROKER={parsed.broker_url}")
        print(f"  ADON_TOKEN_FILE={file.parent / 'engineer.token'}")
        print(f"  ADON_CA={file.parent / 'broker.pem'}")
        print("  each site's agent gets its folder in agents/; it is started by")
        print("  adon agent run --config agent.yml")
    return 0
