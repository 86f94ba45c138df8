"""The SoyKB example's scripts and parts, loaded as its users run them: from its own directory."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "soykb"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))


def load(script: str) -> ModuleType:
    """A script of the example as a module, under a name that no other example uses."""
    spec = importlib.util.spec_from_file_location(f"soykb_{script}", EXAMPLE / f"{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(script: str, *args: object, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, str(EXAMPLE / f"{script}.py"), *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
    )
