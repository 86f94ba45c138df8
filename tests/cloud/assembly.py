"""The services of an OpenStack from PyPI, in a Python environment of their own in the user's cache.

As with the package sets (:mod:`adon.machine.packages`): built beside and renamed into place; pip
keeps what a killed build has downloaded. Versions are those of ``versions.txt``.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from adon.machine import packages
from adon.machine.packages import Progress
from network_provisioner.base.errors import MissingError
from network_provisioner.base.units import format_size

VERSIONS = Path(__file__).with_name("versions.txt")
_TITLE = "OpenStack"
# Changes to what a built directory holds change this, so that old ones are not taken for new.
_LAYOUT = 1
_NEED_BYTES = 1_500_000_000
_SAY_AFTER_S = 10.0
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|ProxyError|Timeout|unreachable"
    r"|from versions: none"
)


def ensure(*, progress: Progress) -> Path:
    """Have the services in the cache and return the directory of their environment.

    :param progress: called with one line for each step that takes time.
    :raises MissingError: no network, no space, no right to write, or what pip says.
    """
    cache = packages.cache_root()
    text = [VERSIONS.read_text(encoding="utf-8"), str(_LAYOUT), sys.version, platform.machine()]
    home = cache / f"openstack-{hashlib.sha256(chr(10).join(text).encode()).hexdigest()[:12]}"
    try:
        if not home.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            with packages.locked(cache / ".openstack.lock", _TITLE, progress):
                if not home.is_dir():
                    _build(cache / ".openstack.build", home, progress)
    except OSError as error:
        where = error.filename or cache
        raise MissingError(f"{_TITLE}: {where}: {error.strerror or error}") from error
    return home


def _build(work: Path, home: Path, progress: Progress) -> None:
    shutil.rmtree(work, ignore_errors=True)  # half an environment is of no use
    work.mkdir()
    free = shutil.disk_usage(work).free
    if free < _NEED_BYTES:
        raise MissingError(
            f"{_TITLE}: found {format_size(free)} free in {work.parent}, "
            f"expected {format_size(_NEED_BYTES)}"
        )
    progress(f"{_TITLE}: installing its services from PyPI (600 MB and minutes, once)")
    tree = work / "tree"
    _run([sys.executable, "-m", "venv", str(tree)], work, progress)
    # All is pinned, so there is nothing to resolve. An environment may be renamed as long as its
    # scripts are given to its interpreter.
    pip = [str(tree / "bin/python"), "-m", "pip", "install", "--no-deps", "--no-input"]
    _run([*pip, "-r", str(VERSIONS)], work, progress)
    tree.rename(home)
    progress(f"{_TITLE}: installed in {home}")
    shutil.rmtree(work, ignore_errors=True)


def _run(words: list[str], work: Path, progress: Progress) -> None:
    log = work / "log"
    start = time.monotonic()
    with log.open("wb") as out:
        # Killed with its caller: the next one uses the same directories.
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                try:
                    child.wait(_SAY_AFTER_S)
                    break
                except subprocess.TimeoutExpired:
                    count = len(re.findall(r"^Collecting ", _read(log), re.MULTILINE))
                    seconds = time.monotonic() - start
                    progress(f"{_TITLE}: {seconds:.0f} s, {count} packages so far")
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
    if child.returncode != 0:
        raise MissingError(f"{_TITLE}: {explain(_read(log), child.returncode)}")


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def explain(log: str, code: int) -> str:
    """Why pip failed, in one line."""
    if "No space left on device" in log:
        return "the disk is full"
    if _NO_NETWORK.search(log):
        return "no network: Python packages could not be downloaded"
    found = re.search(r"^ERROR: (.*)", log, re.MULTILINE)
    words = re.sub(r"\w+://\S+", "the package index", found.group(1)) if found else ""
    return f"pip: {words[:300]}" if words else f"pip ended with exit code {code}"
