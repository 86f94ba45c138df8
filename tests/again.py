"""Runs pytest, and what fails in it once more, alone.

    python -m tests.again PYTEST-ARGUMENT...

Tests with real components share two processors, ports and a disk with five others and with whatever
else the machine does. What fails there and passes alone is named at the end: it is unsteady, and a
fault of the test or of ADON all the same. What fails twice has failed, and so have more than
``MOST`` at once: that many are no accident.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 3
_ROOT = Path(__file__).resolve().parents[1]
_CACHE = _ROOT / ".pytest_cache" / "again"
_TESTS_FAILED = 1  # pytest.ExitCode, without importing pytest
_PYTEST = ("setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "pytest")


def main(arguments: Sequence[str]) -> int:
    """Run pytest with ``arguments``; its exit code, or that of the second run."""
    places = [word for word in arguments if (_ROOT / word).exists()]
    kept = ("-o", f"cache_dir={_CACHE}")
    code = subprocess.call([*_PYTEST, *kept, "--cache-clear", *arguments], cwd=_ROOT)
    failed = _failed() if code == _TESTS_FAILED else []
    if not 0 < len(failed) <= MOST:
        return code
    print(f"tests: {len(failed)} failed, tried again alone", flush=True)
    code = subprocess.call([*_PYTEST, *kept, "-v", "--last-failed", *places], cwd=_ROOT)
    if code == 0:
        print("tests: unsteady, failed beside others and passed alone:", *failed, sep="\n  ")
    return code


def _failed() -> list[str]:
    """The tests that failed in the first run."""
    try:
        text = (_CACHE / "v/cache/lastfailed").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return list(json.loads(text))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
