"""An OpenDaylight of our own, put together from Maven Central into the user's cache.

Made once, as :mod:`adon.machine.cached` does it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adon.machine import packages
from adon.machine.cached import Progress, cache_root, make_once, run_logged
from examples.testbed import truststore
from network_provisioner.base.errors import MissingError
from network_provisioner.base.units import format_size

POM = Path(__file__).with_name("opendaylight.pom.xml")
FEATURES = ("odl-openflowplugin-flow-services", "odl-restconf-nb")
_TITLE = "OpenDaylight"
# Changes to what a built directory holds change this, so that old ones are not taken for new.
_LAYOUT = 1
_NEED_BYTES = 2_000_000_000
_ERROR = re.compile(r"^\[ERROR\]\s*(?:\[.*?\]\s*)?(\S.*)", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NO_NETWORK = re.compile(
    r"Unknown host|UnknownHost|Connection (?:refused|timed out)|Network is unreachable"
    r"|Temporary failure in name resolution|No route to host|Connect to \S+ failed"
)


@dataclass(frozen=True, slots=True)
class Assembly:
    """``home`` is the Karaf distribution, ``programs`` the directory of ``java``."""

    home: Path
    programs: Path


def ensure(*, progress: Progress) -> Assembly:
    """Have OpenDaylight and its Java in the cache.

    :param progress: called with one line for each step that takes time.
    :raises MissingError: no network, no space, no right to write, or what Maven says.
    """
    programs = packages.ensure("maven", progress=progress) / "wrap"
    home = cache_root() / f"opendaylight-{_key()}"
    build = partial(_build, home, programs, progress)
    return Assembly(make_once(home, _TITLE, _NEED_BYTES, build, progress), programs)


def _key() -> str:
    text = "\n".join([POM.read_text(encoding="utf-8"), *FEATURES, str(_LAYOUT), platform.machine()])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _build(home: Path, programs: Path, progress: Progress, work: Path) -> None:
    project = work / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    shutil.copyfile(POM, project / "pom.xml")
    truststore.write(work / "trusted.jks")
    progress(f"{_TITLE}: assembling from Maven Central (some 400 MB and minutes, once)")
    _maven(work, programs, progress)
    tree = project / "target" / "assembly"
    _boot_features(tree / "etc" / "org.apache.karaf.features.cfg")
    tree.rename(home)
    progress(f"{_TITLE}: assembled in {home}")


def _maven(work: Path, programs: Path, progress: Progress) -> None:
    repository = work / "repository"
    repository.mkdir(exist_ok=True)
    trust = (
        f"-Djavax.net.ssl.trustStore={work / 'trusted.jks'}",
        f"-Djavax.net.ssl.trustStorePassword={truststore.PASSWORD}",
        "-Djavax.net.ssl.trustStoreType=JKS",
    )
    command = ["mvn", "--batch-mode", "--no-transfer-progress", "--strict-checksums"]
    command += [f"-Dmaven.repo.local={repository}", "package"]
    log = work / "maven.log"

    def tell(seconds: float) -> None:
        size = format_size(_size_of(repository))
        progress(f"{_TITLE}: {seconds:.0f} s, {size} downloaded so far")

    env = java_environment(programs) | {"MAVEN_OPTS": " ".join(trust)}
    code = run_logged(command, log, tell, cwd=work / "project", env=env)
    if code != 0:
        text = _COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
        raise MissingError(f"{_TITLE}: {_explain(text, code)}")


def java_environment(programs: Path) -> dict[str, str]:
    """The environment in which Debian's Java scripts find the Java of ``programs``."""
    env = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "JAVA", "JAVACMD")}
    return env | {"PATH": f"{programs}:{env.get('PATH', '/usr/bin:/bin')}"}


def _size_of(directory: Path) -> int:
    """Bytes below a directory in which somebody else creates and renames files."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(folder) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _explain(log: str, code: int) -> str:
    """Why Maven failed, in one line."""
    if "No space left on device" in log:
        return "the disk is full"
    if _NO_NETWORK.search(log):
        return "no network: Maven Central could not be reached"
    error_line = _ERROR.search(log)
    return (
        f"Maven: {error_line.group(1)[:300]}"
        if error_line
        else f"Maven ended with exit code {code}"
    )


def _boot_features(settings: Path) -> None:
    """Have Karaf start the features; assembling only put them within its reach."""
    text = settings.read_text(encoding="utf-8")
    more = ",".join(FEATURES)
    changed, count = re.subn(r"^(featuresBoot\s*=.*)$", rf"\1,{more}", text, flags=re.MULTILINE)
    if count != 1:
        raise MissingError(f"{_TITLE}: found {count} lines featuresBoot in {settings}, expected 1")
    settings.write_text(changed, encoding="utf-8")
