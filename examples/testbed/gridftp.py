"""One GridFTP server per site, secured by the testbed's own authority.

In a box each server runs in its site's network namespace and is reached by the data-plane name
``dtn.<site>.adon.test``, so every byte between sites crosses the switches. As an ordinary user all
servers run on 127.0.0.1 and differ by port; their certificates also name ``localhost``, which is
the name the client then checks.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adon.machine import box
from examples.testbed import ca, netns
from examples.testbed.layout import Layout, dtn_name
from examples.testbed.ports import LOOPBACK, free_ports
from examples.testbed.procs import Daemon
from network_provisioner.base.errors import AdonError, MissingError

SERVER, CLIENT = "globus-gridftp-server", "globus-url-copy"
PORT = 2811  # registered with IANA for gsiftp
_TCP_LISTEN = "0A"  # include/net/tcp_states.h, as /proc/net/tcp prints it


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a site's server is reached: the ``host`` of its URL, ``address`` that it binds."""

    host: str
    address: str
    port: int
    netns: str | None = None

    @property
    def url(self) -> str:
        """A file's URL is this and the file's absolute path."""
        return f"gsiftp://{self.host}:{self.port}"


def endpoints(layout: Layout) -> dict[str, Endpoint]:
    """The servers of a testbed, by site, a further one as ``dtn2.<site>``: at their addresses in a
    box, else one for each site on free ports of 127.0.0.1. Raises MissingError if there are
    none."""
    if box.inside():
        first = {s.name: Endpoint(s.dtn, s.address, PORT, s.netns) for s in layout.sites}
        return first | {
            f"{host.name}.{site.name}": Endpoint(host.dns_name, host.address, PORT, host.netns)
            for site in layout.sites
            for host in site.data_nodes
        }
    ports = free_ports(len(layout.sites))
    return {
        site.name: Endpoint("localhost", LOOPBACK, port)
        for site, port in zip(layout.sites, ports, strict=True)
    }


class GridFtp:
    """The servers of all sites and the credential to use them. Not to be shared by threads."""

    def __init__(self, sites: Mapping[str, Endpoint], run_dir: Path, bin_dir: Path) -> None:
        """``run_dir`` gets keys and logs and is kept between runs; ``bin_dir`` has the programs."""
        self.sites = dict(sites)
        self._dir = run_dir / "gridftp"
        self._bin = bin_dir
        self._authority: ca.Authority | None = None
        self._servers: dict[str, Daemon] = {}

    def start(self) -> None:
        """Start every server that does not run yet; returns when all of them listen.

        Raises MissingError without a program or a local account, AdonError if a server does not
        start. Nothing is left running then.
        """
        for program in (SERVER, CLIENT):
            if not (self._bin / program).exists():
                raise MissingError(
                    f"{program} is not in {self._bin} (Debian packages "
                    "globus-gridftp-server-progs, globus-gass-copy-progs)"
                )
        self._dir.mkdir(parents=True, exist_ok=True)
        # Both names, so that the same authority serves in a box and on loopback.
        names = {
            name: (f"{name}.adon.test" if "." in name else dtn_name(name), "localhost")
            for name in self.sites
        }
        self._authority = ca.ensure(self._dir / "ca", names, _account())
        try:
            for name in self.sites:
                if name not in self._servers:
                    self._servers[name] = self._server(name)
            for name, daemon in self._servers.items():
                daemon.wait(partial(listens, daemon.pid, self.sites[name].port))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every server and the transfers it serves."""
        for daemon in self._servers.values():
            daemon.stop()
        self._servers.clear()

    def url(self, site: str) -> str:
        """What to put before an absolute path of ``site``."""
        return self.sites[site].url

    def transfer_env(self) -> dict[str, str]:
        """The environment that pegasus-transfer and globus-url-copy need. Raises AdonError before
        ``start``."""
        if self._authority is None:
            raise AdonError("the GridFTP servers have not been started, so there is no credential")
        return {
            "X509_USER_PROXY": str(self._authority.user),
            "X509_CERT_DIR": str(self._authority.certificates),
            # Names in certificates are compared with the URL's host, without asking DNS.
            "GLOBUS_GSSAPI_NAME_COMPATIBILITY": "STRICT_RFC2818",
            # pegasus-transfer would prefer gfal where it finds it.
            "PEGASUS_FORCE_GUC": "1",
            "PATH": os.pathsep.join([str(self._bin), os.environ.get("PATH", os.defpath)]),
        }

    def _server(self, name: str) -> Daemon:
        assert self._authority is not None
        end = self.sites[name]
        program = str(self._bin / SERVER)
        command = [*netns.execute(end.netns), program, "-c", "/dev/null", "-no-detach"]
        # Each connection is served by a new process, started from this path.
        command += ["-exec", program, "-port", str(end.port), "-hostname", end.address]
        command += [
            "-banner-terse",
            "-home-dir",
            "/",
            "-log-transfer",
            str(self.transfer_log(name)),
        ]
        if os.geteuid() == 0:
            # In the box, root is the only account; the box is what it is confined to.
            command += ["-allow-root", "-allow-disabled-login"]
        log = self._dir / f"{name}.log"
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._dir),
            "LC_ALL": "C",
            "X509_CERT_DIR": str(self._authority.certificates),
            "X509_USER_CERT": str(self._authority.host_certificate(name)),
            "X509_USER_KEY": str(self._authority.host_key(name)),
            "GRIDMAP": str(self._authority.gridmap),
            "GLOBUS_GSSAPI_NAME_COMPATIBILITY": "STRICT_RFC2818",
        }
        return Daemon(command, log, name=SERVER, env=env)

    def transfer_log(self, site: str) -> Path:
        """The server's own record: one line per file, with bytes, streams and times."""
        return self._dir / f"{site}.transfers"


def _account() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as err:
        raise MissingError(
            f"user id {uid} has no account in /etc/passwd, which GridFTP needs to map its user to"
        ) from err


def listens(pid: int, port: int) -> bool:
    """Whether the process itself listens on TCP ``port``: it may be somebody else who does, and
    our server is about to end because of that. Looked at from outside: a trial connection would
    start a session."""
    try:
        table = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:  # it has just ended
        return False
    listening = {
        f"socket:[{fields[9]}]"
        for fields in map(str.split, table)
        if fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port
    }
    return not listening.isdisjoint(_files(pid))


def _files(pid: int) -> Iterator[str]:
    """What the open files of a process are."""
    with suppress(OSError):  # it has just ended
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield str(file.readlink())
