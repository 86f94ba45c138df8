"""The services of an OpenStack from PyPI, in a Python environment of their own in the user's cache.

Made once, as :mod:`adon.machine.cached` does it; pip keeps what a killed build has downloaded.
Versions are those of ``versions.txt``.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import sys
from functools import partial
from pathlib import Path

from adon.machine.cached import Progress, cache_root, make_once, run_logged
from network_provisioner.base.errors import MissingError

VERSIONS = Path(__file__).with_name("versions.txt")
_TITLE = "OpenStack"
# Changes to what a built directory holds change this, so that old ones are not taken for new.
_LAYOUT = 1
_NEED_BYTES = 1_500_000_000
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|ProxyError|Timeout|unreachable"
    r"|from versions: none"
)


def ensure(*, progress: Progress) -> Path:
    """Have the services in the cache and return the directory of their environment.

    :param progress: called with one line for each step that takes time.
    :raises MissingError: no network, no space, no right to write, or what pip says.
    """
    text = [VERSIONS.read_text(encoding="utf-8"), str(_LAYOUT), sys.version, platform.machine()]
    key = hashlib.sha256("\n".join(text).encode()).hexdigest()[:12]
    home = cache_root() / f"openstack-{key}"
    return make_once(home, _TITLE, _NEED_BYTES, partial(_build, home, progress), progress)


def _build(home: Path, progress: Progress, work: Path) -> None:
    progress(f"{_TITLE}: installing its services from PyPI (600 MB and minutes, once)")
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)  # half an environment is of no use
    _run([sys.executable, "-m", "venv", str(tree)], work, progress)
    # All is pinned, so there is nothing to resolve. An environment may be renamed as long as its
    # scripts are given to its interpreter.
    pip = [str(tree / "bin/python"), "-m", "pip", "install", "--no-deps", "--no-input"]
    _run([*pip, "-r", str(VERSIONS)], work, progress)
    tree.rename(home)
    progress(f"{_TITLE}: installed in {home}")


def _run(words: list[str], work: Path, progress: Progress) -> None:
    log = work / "log"

    def tell(seconds: float) -> None:
        count = len(re.findall(r"^Collecting ", _read(log), re.MULTILINE))
        progress(f"{_TITLE}: {seconds:.0f} s, {count} packages so far")

    code = run_logged(words, log, tell)
    if code != 0:
        raise MissingError(f"{_TITLE}: {explain(_read(log), code)}")


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def explain(log: str, code: int) -> str:
    """Why pip failed, in one line."""
    if "No space left on device" in log:
        return "the disk is full"
    if _NO_NETWORK.search(log):
        return "no network: Python packages could not be downloaded"
    match = re.search(r"^ERROR: (.*)", log, re.MULTILINE)
    words = re.sub(r"\w+://\S+", "the package index", match.group(1)) if match else ""
    return f"pip: {words[:300]}" if words else f"pip ended with exit code {code}"
