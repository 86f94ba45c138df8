"""``adon init``: an adon.yml for this network, and the trial of it."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.output import note
from adon.cli.parsing import DRY_RUN, Noun, catalog, command_words, config, flag, option
from adon.machine.service_account import SERVICE
from network_provisioner.base.errors import AdonError, InputError

if TYPE_CHECKING:
    from adon.config.sections import Config
    from adon.init.plan import Choices, Facts
    from network_provisioner.controllers.openflow.scan import Ends, HostPort, Passage
    from network_provisioner.topology.discovery import Discovered
    from pegasus_hooks.install.edits import FileEdit

_LOOPBACK, _SWITCHES = "127.0.0.1:8470", "0.0.0.0:6653"
_ALL = ("0.0.0.0", "[::]")
_QUIET = 0.4  # of the time to listen: Open vSwitch tries again after 8 s at most
_TC_S = 20.0
_OPTIONS = (
    config("the file to write"),
    catalog("site"),
    catalog("replica"),
    option("--dtn", "a site and its data transfer node; may be repeated", "SITE=HOST",
           action="append", default=[]),
    option("--router", "a router between switches that is not a neighbour of this machine; may be "
           "repeated", "ADDRESS", action="append", default=[]),
    option("--switches", "address where the switches connect (default: as configured, else "
           f"{_SWITCHES})", "HOST:PORT"),
    option("--listen-for", "how long to wait for the switches", "TIME", default="20 s"),
    option("--switch", "name of a switch (default: s1, s2, …); may be repeated", "DPID=NAME",
           action="append", default=[]),
    option("--shared", "a link that others use too; ADON gets half of it (default: links "
           "of routers); may be repeated", "A-B", action="append", default=[]),
    option("--reach", "where the broker listens; with an address other than loopback, tokens and a "
           f"certificate are made (default: as configured, else {_LOOPBACK})", "HOST:PORT"),
    option("--exec", "prefix for tc, if the switches' ports are on another host (default: as "
           "configured)", "COMMAND", command_words, dest="execute"),
    DRY_RUN,
    flag("--yes", "do not ask; use options and defaults"),
)  # fmt: skip


NOUN = Noun("init")


@NOUN.command(*_OPTIONS)
def _run(args: argparse.Namespace) -> int:
    """Make an adon.yml for this network, and try it.

    It looks for sites in Pegasus's catalogs and in the pool, for their data transfer nodes in URLs
    and DNS, and for switches, links, speeds, delays and the nodes' ports by listening to the
    switches. This machine's neighbours that forward packets between switches become routers. It
    asks for the rest: names, links that others use too, and who may reach the broker. Then it
    writes all files or none, and tests them: a broker grants and releases one transit.

    In an existing adon.yml it changes only what is new or different.

    Point the switches at this machine first. Open vSwitch:
      ovs-vsctl set bridge BRIDGE protocols=OpenFlow13 fail-mode=secure
      ovs-vsctl set-controller BRIDGE tcp:ADDRESS:6653

    If a broker controls them, stop it first; transits keep their paths.

    Examples:
      adon init --sites sites.yml
      adon init --dtn mu=dtn.example.edu --dtn tacc=192.0.2.7 --yes
      adon init --sites sites.yml --reach broker.example.edu:8470

    Exit codes: 0 done; 1 you declined, or no transit was granted; 2 nothing was written.
    """
    import yaml

    from adon.config.adon_yml import parse_config
    from adon.init.files import config_edits, unit_edits
    from adon.init.merge import updated
    from adon.init.plan import rendered
    from adon.service.wiring import make_controller
    from network_provisioner.topology.data import topology_from_dict
    from network_provisioner.topology.discovery import differences
    from pegasus_hooks.install.edits import carry_out, check_writable

    if not (args.yes or args.dry_run or sys.stdin.isatty()):
        raise InputError("standard input is not a terminal, expected --yes or --dry-run")
    before = _before(args.config)
    args.switches = args.switches or (before.controller.listen if before else _SWITCHES)
    facts = _find(args, before)
    choices, secrets = _choose(args, facts, before)
    file = args.config.absolute()
    if before is None:
        text = rendered(facts, choices)
    else:
        text = updated(file.read_text("utf-8-sig"), before, facts, choices)
    parsed = parse_config(yaml.safe_load(text), str(file))
    network = topology_from_dict(parsed.topology)
    make_controller(parsed.controller, network)
    for difference in differences(network, facts.network):
        note(difference)
    edits = [*secrets, *config_edits(file, text)]
    if file.parent == SERVICE[0]:
        edits += unit_edits(bool(choices.devices) and not choices.execute)
    check_writable(edits)
    print("".join(edit.diff() for edit in edits if edit.needed), end="")
    if args.dry_run:
        print("dry run: nothing was written")
        return 0
    if not any(edit.needed for edit in edits):
        print(f"{file}: nothing to change")
        return 0
    if not args.yes and _ask(args, "Write these files?", "no")[:1].lower() != "y":
        print("nothing was written")
        return 1
    carry_out(edits)
    if file.parent == SERVICE[0] and parsed.security.tls is not None:
        _give_to_service(Path(parsed.security.tls.key))
    return _try(file, parsed)


def _give_to_service(key: Path) -> None:
    """Let the package's broker, which is no root, read its key."""
    with suppress(LookupError, PermissionError):  # no package, or no root
        shutil.chown(key, group="adon")
        key.chmod(0o640)


def _find(args: argparse.Namespace, before: Config | None) -> Facts:
    """Sites, switches and links. Raises InputError if they are too few."""
    from adon.init import sites as site_sources
    from adon.init.plan import Facts
    from network_provisioner.topology.data import topology_from_dict

    routers = {*site_sources.given_routers(args.router)}
    pairs = [
        *site_sources.given_sites(args.dtn),
        *site_sources.catalog_urls(args.sites, args.replicas),
    ]
    if before is not None:
        pairs += site_sources.sites_of_topology(topology_from_dict(before.topology))
    hosts = site_sources.hosts_of_urls(pairs)
    for site in sorted(site_sources.pool_sites()):
        hosts.setdefault(site, [])
    for site in (site for site, names in hosts.items() if not names):
        note(f"site {site}: no data transfer node is known; name it with --dtn {site}=HOST")
    sites = site_sources.resolved(hosts, note)
    if len(sites) < 2:
        raise InputError(
            f"found {len(sites)} sites with a data transfer node, expected at least two: "
            "use --dtn SITE=HOST, or --sites with Pegasus's site catalog"
        )
    for site, dtns in sites.items():
        print(f"site {site}: {', '.join(dtn.address for dtn in dtns)}")
    addresses = [dtn.address for dtns in sites.values() for dtn in dtns]
    macs = site_sources.neighbours()
    routers = (routers | macs.keys()) - {*addresses}
    network, places, delays_s, passages = _listen(args, addresses, routers)
    facts = Facts(sites, network, _single(places), delays_s, passages)
    for site, dtns in sites.items():
        for dtn in (dtn for dtn in dtns if dtn not in facts.attached.get(site, ())):
            mac = f" (MAC {macs[dtn.address]})" if dtn.address in macs else ""
            note(f"site {site}: {dtn.address}{mac} {_misplaced(places[dtn.address])}; left out")
    if len(facts.attached) < 2:
        raise InputError(
            f"found {len(facts.attached)} sites at ports of switches, expected at least two: each "
            "node must be in the Ethernet segment of a switch that connects"
        )
    return facts


def _single(places: Mapping[str, Collection[HostPort]]) -> dict[str, HostPort]:
    """The port of each address that answers at one only."""
    return {address: next(iter(at)) for address, at in places.items() if len(at) == 1}


def _misplaced(ports: Collection[HostPort]) -> str:
    """Why a node that answers at these ports cannot be used."""
    from network_provisioner.base.fields import format_dpid

    if len(ports) == 1:
        return "is at another port than the first node of its site"
    if not ports:
        return "answers at no port of a switch"
    ends = ", ".join(
        f"{format_dpid(dpid)}:{number}" for dpid, number in sorted(p.end for p in ports)
    )
    return f"answers at the ports {ends}, expected one (on Linux: net.ipv4.conf.all.arp_ignore=1)"


def _listen(
    args: argparse.Namespace, addresses: Sequence[str], routers: Collection[str]
) -> tuple[Discovered, dict[str, set[HostPort]], dict[Ends, float], list[Passage]]:
    """What the switches say, until every node is found and joined to all others, at most as long
    as told; then delays, and what leads through routers."""
    from network_provisioner.base.controller import ControllerError
    from network_provisioner.base.fields import format_dpid
    from network_provisioner.base.units import parse_duration
    from network_provisioner.controllers.openflow.scan import Scan, joins

    listen_s = parse_duration(args.listen_for, "--listen-for")
    print(f"listening for switches on {args.switches}, at most {listen_s:g} s", flush=True)
    with Scan(args.switches) as scan:
        until = time.monotonic() + listen_s
        while True:
            if not scan.settle(until, _QUIET * listen_s):
                raise InputError(
                    f"no switch connected to {args.switches} within {listen_s:g} s, expected at "
                    "least one: set its controller to this machine (adon init --help)"
                )
            network = scan.discover()
            places = scan.find_ports(network, addresses)
            hosts = _single(places)
            complete = hosts.keys() >= set(addresses) and joins(network, hosts)
            if complete or time.monotonic() >= until:
                break
        try:
            delays_s, passages = scan.find_delays(network, hosts, routers)
        except ControllerError as error:  # a switch need not do all of that
            note(f"delays and routers are unknown: {error}")
            delays_s, passages = {}, []
    for dpid, ports in sorted(network.ports.items()):
        print(f"switch {format_dpid(dpid)}: ports {', '.join(p.name for p in ports.values())}")
    print(f"links between switches: {len(network.links)}, through routers: {len(passages)}")
    return network, places, delays_s, passages


def _choose(
    args: argparse.Namespace, facts: Facts, before: Config | None
) -> tuple[Choices, list[FileEdit]]:
    """What people say of it, and the files with secrets that follow from that. Raises
    InputError."""
    from adon.config.sections import split_address
    from adon.config.security import is_loopback
    from adon.init.files import CERTIFICATE, secret_edits
    from adon.init.merge import new_links
    from adon.init.plan import Choices, default_names, link_name, named_switches, topology_section
    from network_provisioner.base.fields import dpid as read_dpid
    from network_provisioner.base.fields import format_dpid

    known = before.topology if before else {}
    names = default_names(facts.network, known)
    for text in args.switch:
        number, equal, name = text.partition("=")
        dpid = read_dpid(number, "--switch")
        if not equal or dpid not in names:
            dpids = ", ".join(map(format_dpid, names))
            raise InputError(f"--switch: found {text!r}, expected DPID=NAME with one of {dpids}")
        names[dpid] = name
    for dpid in () if args.switch else sorted(names.keys() - named_switches(known)):
        names[dpid] = _ask(args, f"name of switch {format_dpid(dpid)}", names[dpid])
    draft = Choices(names, args.switches, before=known)
    links = {
        link_name(link): link["layer"]
        for link in new_links(known, topology_section(facts, draft)[0])
        if link["layer"] != "lan"
    }
    for name in args.shared:
        if name not in links:
            expected = f"one of {', '.join(links)}" if links else "none: there is no new link"
            raise InputError(f"--shared: found {name!r}, expected {expected}")
    shared = set(args.shared) or {
        name
        for name, layer in links.items()
        if _ask(args, f"does only ADON use link {name}", "no" if layer == "l3" else "yes")[
            :1
        ].lower()
        != "y"
    }
    reach = args.reach or (before.broker.listen if before else "")
    reach = reach or _ask(
        args, "address of the broker (loopback: for this machine only)", _LOOPBACK
    )
    host, _ = split_address(reach, "--reach")
    if host in _ALL and before is None:
        raise InputError(f"--reach: found {reach}, expected the name or address that others use")
    folder = args.config.absolute().parent
    state = SERVICE[1] if folder == SERVICE[0] else ""
    edits: list[FileEdit] = []
    tokens: list[dict[str, Any]] = []
    tls = before.security.tls if before else None
    if host in _ALL or (tls is not None and Path(tls.certificate) != folder / CERTIFICATE):
        note(
            "'adon init' did not make these tokens and this certificate: make tokens for the "
            "agents of new sites yourself"
        )
    elif not is_loopback(host):
        edits, tokens = secret_edits(
            folder, facts.attached, f"https://{reach}", host.strip("[]"), state
        )
    configured = before.controller.exec if before else []
    execute = configured if args.execute is None else args.execute
    choices = Choices(
        names, args.switches, reach, frozenset(shared), _devices(facts.network, execute), execute,
        state, tokens, known,
    )  # fmt: skip
    return choices, edits


def _before(file: Path) -> Config | None:
    """The configuration that is there, None for none. Raises InputError if it cannot be
    extended."""
    from adon.config.adon_yml import load_config
    from adon.config.yamlfile import read_yaml

    if not file.exists():
        return None
    config = load_config(file)
    where = read_yaml(file)["topology"].get("file")
    if where or config.controller.driver != "openflow":
        what = (
            f"a topology in {where}" if where else f"controller.driver {config.controller.driver}"
        )
        raise InputError(
            f"{file}: found {what}, expected a topology in it and controller.driver openflow; "
            "write another file with --config"
        )
    return config


def _devices(network: Discovered, execute: Sequence[str]) -> frozenset[str]:
    """Those ports of the switches that ``tc`` reaches as devices."""

    def reached(device: str) -> bool:
        command = [*execute, "tc", "qdisc", "show", "dev", device]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_TC_S)
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


def _try(file: Path, parsed: Config) -> int:
    from adon.init.plan import agent_steps
    from adon.init.trial import try_transit

    print(f"{file}: written; trying one transit", flush=True)
    try:
        transit = try_transit(file, parsed)
    except AdonError as error:
        note(f"{error}; 'adon doctor --config {file}' has details")
        return 1
    request = transit.request
    print(
        f"transit {request.src} to {request.dst}: granted on {' > '.join(transit.grant.path)}, "
        "and released"
    )
    if file.parent == SERVICE[0]:  # the state is the service's
        print("next: systemctl enable --now adon-broker")
    else:
        print(f"next: adon broker --config {file}")
    if parsed.security.tls is not None:
        print(f"  commands need ADON_BROKER={parsed.broker_url}")
        print(f"  ADON_TOKEN_FILE={file.parent / 'engineer.token'}")
        print(f"  ADON_CA={file.parent / 'broker.pem'}")
        print(f"  the agent of each site has its folder in {file.parent / 'agents'}:")
        for line in agent_steps(file.parent == SERVICE[0]):
            print(f"  {line}")
    return 0
