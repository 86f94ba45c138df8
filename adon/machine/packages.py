"""The programs of the testbed as private Debian packages, in the user's cache.

Nothing is installed on the machine and no root is needed. Each set is built once in a hidden
directory and renamed into place, so a directory that is there is whole; a build that was killed
is taken up again where it stopped.

    <cache>/adon/<set>-<key>/root/    the unpacked packages
                            /wrap/    one entry per program: put this on PATH
                            /packages.json   suite, and name and version of every package
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adon.machine import relocate
from adon.machine.apt import Deb, NetworkError, PrivateApt, codename
from adon.machine.cached import Progress, cache_errors, cache_root, make_once
from network_provisioner.base.errors import InputError, MissingError
from network_provisioner.base.units import format_size

# Changes to what a built directory holds change this, so that old ones are not taken for new.
LAYOUT = 1
# Never needed beside our programs: they use the machine's interpreters, and its documents.
_SKIP = re.compile(
    r"lib.*-perl\Z|lib(llvm|perl|python|js-|pam|systemd-shared|semanage|sepol|cryptsetup|devmapper)"
)
# Of the machine's own release, its own C library must be used: it belongs to its loader.
_C_LIBRARY = re.compile(r"(libc6|libc-bin|libcrypt1|libgcc-s1|libstdc\+\+6|libgconv)\b|libc-")
_LIBRARY = re.compile(r"(lib(?!.*(?:-dev|-bin|-modules)\Z)|zlib1g)")


@dataclass(frozen=True, slots=True)
class PackageSet:
    """A set of programs.

    ``suites`` are tried in turn; None is the machine's own release. ``relocated`` sets bring
    their own C library and are patched to use it. ``check`` is a command that shows it works.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    check: tuple[str, ...]
    suites: tuple[str | None, ...] = (None,)
    relocated: bool = False
    need_bytes: int = 200_000_000


SETS = {
    s.name: s
    for s in (
        PackageSet(
            "condor",
            "HTCondor",
            ("condor", "patchelf"),
            ("condor_master", "condor_schedd", "condor_startd", "condor_status"),
            ("condor_version",),
            # The htcondor2 bindings are of 25.x, as is sid; trixie's 23.9 can be spoken to.
            suites=("sid", "trixie"),
            relocated=True,
            need_bytes=900_000_000,
        ),
        PackageSet(
            "openvswitch",
            "Open vSwitch",
            ("openvswitch-switch", "openvswitch-common"),
            ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"),
            ("ovs-vswitchd", "--version"),
        ),
        PackageSet(
            "gridftp",
            "GridFTP",
            # openssl makes the testbed's certificates.
            ("globus-gridftp-server-progs", "globus-gass-copy-progs", "openssl"),
            ("globus-gridftp-server", "globus-url-copy", "openssl"),
            ("globus-gridftp-server", "-version"),
        ),
        PackageSet(
            "bio",
            "bwa, samtools and bcftools",
            ("bwa", "samtools", "bcftools"),
            ("bwa", "samtools", "bcftools"),
            ("samtools", "--version"),
        ),
        PackageSet(
            "montage",
            "Montage",
            ("montage",),
            (
                "mProject",
                "mDiff",
                "mFitplane",
                "mBgModel",
                "mBackground",
                "mImgtbl",
                "mAdd",
                "mViewer",
                "mMakeImg",
            ),
            ("mMakeImg",),
        ),
        PackageSet(
            "java",
            "a JDK",
            ("openjdk-17-jdk-headless", "openjdk-17-jre-headless"),
            ("java", "javac"),
            ("javac", "-version"),
            # Any JDK makes the same classes for Java 8 from the same sources; later Debians have
            # others than this one, which runs there, too.
            suites=(None, "bookworm"),
            need_bytes=700_000_000,
        ),
        PackageSet(
            "maven",
            "Maven and a Java for OpenDaylight",
            ("maven", "openjdk-17-jre-headless"),
            ("mvn", "java"),
            ("java", "-version"),
            suites=(None, "bookworm"),
            need_bytes=500_000_000,
        ),
        PackageSet(
            "iperf3",
            "iperf3 and ping",
            ("iperf3", "iputils-ping"),
            ("iperf3", "ping"),
            ("iperf3", "--version"),
        ),
        PackageSet("nftables", "nftables", ("nftables",), ("nft",), ("nft", "--version")),
        PackageSet("socat", "socat", ("socat",), ("socat",), ("socat", "-V")),
        PackageSet(
            "postgresql",
            "PostgreSQL",
            ("postgresql-15",),
            ("postgres", "initdb"),
            ("postgres", "--version"),
            suites=(None, "bookworm"),
        ),
        PackageSet(
            "chromium",
            "Chromium",
            # The shell draws and runs pages as the browser does, without what shows a window: 114
            # MB to fetch, not 161. Without a font no page has letters.
            ("chromium-headless-shell", "chromium-common", "fonts-dejavu-core"),
            ("chromium-headless-shell",),
            ("chromium-headless-shell", "--version"),
            need_bytes=700_000_000,
        ),
    )
}


def key_of(spec: PackageSet, release: str, machine: str) -> str:
    """A short key that changes with whatever changes what would be built."""
    text = json.dumps([LAYOUT, repr(spec), release, machine])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def select(spec: PackageSet, plan: list[Deb]) -> list[Deb]:
    """Of all dependencies those that the programs run on: themselves and shared libraries."""

    def needed(name: str) -> bool:
        if name in spec.packages:
            return True
        if not _LIBRARY.match(name) or _SKIP.match(name):
            return False
        return spec.relocated or not _C_LIBRARY.match(name)

    return [deb for deb in plan if needed(deb.name)]


def ensure(set_name: str, *, progress: Progress) -> Path:
    """Have the programs of a set in the cache and return its directory; see the module's text.

    Programs that are installed on the machine are used as they are (but for HTCondor, whose
    version has to fit the bindings).

    :param progress: called with one line for each step that takes time.
    :raises InputError: for a set that is not known.
    :raises MissingError: no apt-get, no network, no space, or no right to write the cache.
    """
    spec = SETS.get(set_name)
    if spec is None:
        raise InputError(f"package set: found {set_name!r}, expected one of {', '.join(SETS)}")
    home = cache_root() / f"{spec.name}-{key_of(spec, codename(), platform.machine())}"
    with cache_errors(spec.title):
        # Without the lock: a whole cache may be another user's, who lets us read it.
        if not home.is_dir() and (installed := _installed_on_machine(spec)):
            return _link_installed(spec, installed, home.parent)
    build = partial(_build, spec, home, progress)
    return make_once(home, spec.title, spec.need_bytes, build, progress)


def _installed_on_machine(spec: PackageSet) -> dict[str, Path]:
    """Every program of the set where the machine has them all and they run, else nothing."""
    if spec.relocated:
        return {}
    places = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
    installed = {p: shutil.which(p, path=places) for p in spec.programs}
    programs = {name: Path(path) for name, path in installed.items() if path}
    works = len(programs) == len(spec.programs) and relocate.runs(
        [str(programs[spec.check[0]]), *spec.check[1:]], {}
    )
    return programs if works else {}


def _link_installed(spec: PackageSet, programs: dict[str, Path], cache: Path) -> Path:
    text = json.dumps({name: str(path) for name, path in programs.items()})
    home = cache / f"{spec.name}-installed-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        build = Path(tempfile.mkdtemp(prefix=f".{spec.name}.link-", dir=cache))
        build.chmod(0o755)
        (build / "wrap").mkdir()
        for name, path in programs.items():
            (build / "wrap" / name).symlink_to(path)
        (build / "root").symlink_to("/")
        (build / "packages.json").write_text(json.dumps({"suite": "installed", "packages": {}}))
        try:
            build.rename(home)
        except OSError:
            shutil.rmtree(build)
            if not home.is_dir():  # another run was not first
                raise
    return home


def _build(spec: PackageSet, home: Path, progress: Progress, work: Path) -> None:
    failures: list[str] = []
    for suite in spec.suites:
        try:
            _build_from(spec, suite, work, home, progress)
        except NetworkError as error:
            raise MissingError(f"{spec.title}: {error}") from None
        except MissingError as error:
            failures.append(str(error))
        else:
            return
    raise MissingError(f"{spec.title}: {failures[0]}")


def _build_from(
    spec: PackageSet, suite: str | None, work: Path, home: Path, progress: Progress
) -> None:
    apt = PrivateApt(work / f"apt-{suite or 'own'}", suite)
    progress(f"{spec.title}: reading the package lists of Debian {apt.suite}")
    apt.update()
    debs = select(spec, apt.plan(spec.packages))
    total = sum(deb.size for deb in debs)
    progress(f"{spec.title}: downloading {len(debs)} packages, {format_size(total)}")
    archives = apt.download(debs)
    progress(f"{spec.title}: unpacking")
    for stale in work.glob("tree-*"):
        # What a killed run left, where an unpacker may still be writing its last.
        shutil.rmtree(stale, ignore_errors=True)
    tree = Path(tempfile.mkdtemp(prefix="tree-", dir=work))
    tree.chmod(0o755)
    root = tree / "root"
    root.mkdir()
    for archive in archives:
        apt.extract(archive, root)
    relocate.trim(root)
    versions = {deb.name: deb.version for deb in debs}
    record = {"suite": apt.suite, "packages": versions}
    (tree / "packages.json").write_text(json.dumps(record, indent=1) + "\n")
    make = relocate.patch if spec.relocated else relocate.wrap
    make(tree, home)
    relocate.check(tree, spec.check, own_loader=spec.relocated)
    tree.rename(home)
