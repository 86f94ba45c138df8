"""Debian packages without installing them: a private apt that leaves the machine's own alone.

The mirror, its proxy and its policy come from the machine's apt configuration; lists, status and
archives are private, so neither root nor the system's package lists are needed. Signatures are
checked as always.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from network_provisioner.base.errors import MissingError

DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The machine's fetching policy (proxies, certificates, retries) holds for us too; its index
# targets (desktop metadata) and its hooks (which clean the system's cache) do not.
_POLICY = re.compile(r"^(Acquire::(?!IndexTargets)|APT::Architectures?\b|Dir::Bin)")
# Programs of a desktop that packages ask for and nothing here starts. To apt they are installed, so
# that what they need does not come either: drivers of graphics cards and their compiler, 50 MB.
_NEVER = ("x11-utils", "xdg-utils")
_UNREACHED = "no network"
_NO_NETWORK = re.compile(
    r"Could not resolve|Could not connect|Connection (?:failed|refused|timed out)"
    r"|Temporary failure|Network is unreachable|connection timed out|Unable to connect"
)


class NetworkError(MissingError):
    """The mirror could not be reached: another suite of it cannot be either."""


@dataclass(frozen=True, slots=True)
class Deb:
    """One package to fetch. ``size`` is the archive's, in bytes."""

    name: str
    version: str
    size: int


@dataclass(frozen=True, slots=True)
class AptSource:
    """One suite of a Debian mirror as the machine's apt knows it."""

    uri: str
    suite: str
    component: str

    def line(self) -> str:
        """The source in sources.list form."""
        signed = f"[signed-by={DEBIAN_KEYRING}] " if DEBIAN_KEYRING.is_file() else ""
        return f"deb {signed}{self.uri} {self.suite} {self.component}"


def parse_targets(text: str) -> list[AptSource]:
    """Sources out of ``apt-get indextargets --format '$(CREATED_BY)|$(REPO_URI)|…'``."""
    apt_sources = []
    for row in text.splitlines():
        created_by, *rest = [*row.split("|"), "", "", ""][:4]
        if created_by == "Packages" and all(rest):
            apt_sources.append(AptSource(*rest))
    return list(dict.fromkeys(apt_sources))


def choose_sources(known: Sequence[AptSource], codename: str, suite: str | None) -> list[AptSource]:
    """The sources to use: the machine's own Debian suites, or ``suite`` from the same mirror.

    :raises MissingError: when the machine has no source of its own Debian release.
    """
    own = [s for s in known if s.component == "main" and s.suite == codename]
    if not own:
        raise MissingError(
            f"apt sources: found no 'main' of Debian {codename or '(unknown release)'}, expected a"
            " Debian machine with its mirror in /etc/apt/sources.list or sources.list.d"
        )
    if suite is not None:
        return [AptSource(own[0].uri, suite, "main")]
    names = {codename, f"{codename}-updates", f"{codename}-security"}
    return [s for s in known if s.component == "main" and s.suite in names]


def parse_plan(text: str) -> dict[str, str]:
    """Package name to version out of ``apt-get --simulate install``."""
    rows = re.finditer(r"^Inst (\S+) (?:\[[^\]]*\] )?\((\S+) ", text, re.MULTILINE)
    return {m.group(1): m.group(2) for m in rows}


def parse_uris(text: str) -> dict[str, int]:
    """Package name to archive size out of ``apt-get --print-uris install``."""
    rows = re.finditer(r"^'\S+' ([^_\s]+)_\S+\.deb (\d+)", text, re.MULTILINE)
    return {m.group(1): int(m.group(2)) for m in rows}


def explain(text: str) -> str:
    """One line that says why apt failed, from what it wrote."""
    if "No space left on device" in text or "not enough free space" in text:
        return "the disk is full"
    lines = [ln for ln in map(str.strip, text.splitlines()) if ln not in ("", "E:", "W:")]
    errors = [ln[2:].strip() for ln in lines if ln.startswith(("E:", "W:"))]
    if any(_NO_NETWORK.search(line) for line in errors):
        where = re.search(r"https?://([^/\s]+)", text)
        return f"{_UNREACHED}: {where.group(1) if where else 'the mirror'} could not be reached"
    return (errors or lines or ["apt-get gave no reason"])[0]


def _installed(package: str) -> str:
    """What dpkg's status says of an installed package, as far as apt asks."""
    return (
        f"Package: {package}\nStatus: install ok installed\nVersion: 9999\n"
        "Architecture: all\nMaintainer: none\nDescription: none\n\n"
    )


class PrivateApt:
    """An apt with its own lists, status and archives under ``home``.

    :param suite: None for the machine's own release, or the name of another one (``"sid"``).
    """

    def __init__(self, home: Path, suite: str | None) -> None:
        for program in ("apt-get", "apt-config", "dpkg-deb", "setpriv"):
            if shutil.which(program) is None:
                raise MissingError(f"{program}: not found, expected a Debian machine")
        self.home = home
        self.suite = suite or codename()
        for part in ("lists/partial", "archives/partial"):
            (home / part).mkdir(parents=True, exist_ok=True)
        (home / "status").write_text("".join(map(_installed, _NEVER)))
        form = "$(CREATED_BY)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
        # Without ReleaseInfo also sources whose lists the machine does not have, as it is new.
        targets = ("apt-get", "-oAPT::Get::IndexTargets::ReleaseInfo=false", "indextargets")
        known = parse_targets(self._run(*targets, "--format", form, own=False))
        chosen = choose_sources(known, codename(), suite)
        (home / "sources.list").write_text("".join(f"{s.line()}\n" for s in chosen))
        dump = self._run("apt-config", "dump", own=False).splitlines()
        policy = [line for line in dump if _POLICY.match(line)]
        (home / "apt.conf").write_text("\n".join([*policy, *self._private()]) + "\n")

    def _private(self) -> list[str]:
        home = self.home
        return [
            'Dir::Etc::parts "/dev/null";',
            'Dir::Etc::main "/dev/null";',
            'Dir::Etc::preferences "/dev/null";',
            'Dir::Etc::preferencesparts "/dev/null";',
            'Dir::Etc::sourceparts "/dev/null";',
            f'Dir::Etc::sourcelist "{home}/sources.list";',
            f'Dir::State "{home}";',
            f'Dir::State::status "{home}/status";',
            f'Dir::State::lists "{home}/lists";',
            f'Dir::Cache "{home}";',
            f'Dir::Cache::archives "{home}/archives";',
            'Acquire::Languages "none";',
            'Acquire::Retries "3";',
            'Acquire::http::Timeout "20";',
            'Acquire::https::Timeout "20";',
            'APT::Install-Recommends "false";',
            'APT::Sandbox::User "";',
            'APT::Update::Error-Mode "any";',
            'Debug::NoLocking "true";',
        ]

    def _run(self, *command: str, own: bool = True, cwd: Path | None = None) -> str:
        env = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        if own:
            env["APT_CONFIG"] = str(self.home / "apt.conf")
        # apt must not outlive a killed caller: the next run uses the same directory.
        tied = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        done = subprocess.run(
            tied, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        output = done.stdout.decode(errors="replace")
        if done.returncode != 0:
            wrote = done.stderr.decode(errors="replace") or output
            reason = explain(wrote)
            verb = next((w for w in command[1:] if not w.startswith("-")), "")
            kind = NetworkError if reason.startswith(_UNREACHED) else MissingError
            raise kind(f"{command[0]} {verb}: {reason}")
        return output

    def update(self) -> None:
        """Fetch the package lists. Raises MissingError."""
        self._run("apt-get", "-qq", "update")

    def plan(self, packages: Sequence[str]) -> list[Deb]:
        """``packages`` and all they depend on, as on an empty machine. Raises MissingError."""
        versions = parse_plan(self._run("apt-get", "-q", "--simulate", "install", *packages))
        uris = self._run("apt-get", "-qq", "--print-uris", "install", *packages)
        sizes = parse_uris(uris)
        return [Deb(name, version, sizes.get(name, 0)) for name, version in versions.items()]

    def download(self, debs: Sequence[Deb]) -> list[Path]:
        """Fetch ``debs``, verified; those that are there already are kept. Raises MissingError."""
        into = self.home / "archives"
        wanted = [f"{d.name}={d.version}" for d in debs]
        self._run("apt-get", "-qq", "download", *wanted, cwd=into)
        archives = [match for d in debs for match in sorted(into.glob(f"{d.name}_*.deb"))[:1]]
        if len(archives) != len(debs):
            raise MissingError(
                f"apt-get download: {len(archives)} of {len(debs)} packages were downloaded"
            )
        return archives

    def extract(self, deb: Path, into: Path) -> None:
        """Unpack one archive below ``into``. Raises MissingError."""
        self._run("dpkg-deb", "-x", str(deb), str(into))


def codename() -> str:
    """The machine's Debian release (``"bookworm"``), empty if it is unknown."""
    for place in (Path("/etc/os-release"), Path("/usr/lib/os-release")):
        if place.is_file():
            match = re.search(r'^VERSION_CODENAME="?([a-z]+)', place.read_text(), re.MULTILINE)
            return match.group(1) if match else ""
    return ""
