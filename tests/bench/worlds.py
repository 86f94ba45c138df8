"""Workflows and platforms for the benches: SoyKB's shape, and made-up sites around it."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
_EXAMPLE = ROOT / "examples" / "soykb" / "workflow.py"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_VERSION = "5.0.4"


def soykb(out: Path, samples: int, chromosomes: int, chromosome_bp: int = 300_000) -> Path:
    """Write SoyKB's workflow and catalogs to ``out`` as the example does; no data is made.

    Returns the path of the workflow. Raises CalledProcessError.
    """
    numbers = {
        "samples": samples,
        "chromosomes": chromosomes,
        "chromosome-bp": chromosome_bp,
    }
    options = [word for name, n in numbers.items() for word in (f"--{name}", str(n))]
    subprocess.run(
        [sys.executable, str(_EXAMPLE), "--out", str(out), "--no-data", *options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return out / "workflow.yml"


def make_platform(folder: Path, seed: int, n_sites: int | None = None) -> str:
    """Replace the catalogs beside a SoyKB workflow by those of a made-up platform.

    2 to 8 sites (or ``n_sites``) of 2 to 64 workers, a quarter to four times as fast as the
    example's machine; half of them with queues of up to 30 minutes; each pair of them joined by
    10 Mb/s to 100 Gb/s at 1 to 200 ms. One site holds the inputs and wants the results; one in
    four times nothing can run there. Returns that site.
    """
    rng = Random(seed)
    names = [f"site{i}" for i in range(n_sites or rng.randint(2, 8))]
    store = rng.choice(names)
    computing = [s for s in names if s != store or rng.random() >= 0.25]
    speed = {s: _spread(rng, 0.25, 4.0) for s in names}
    hints: dict[str, dict[str, str]] = {}
    for name in names:
        wait = _spread(rng, 10, 1800) if rng.random() < 0.5 else rng.uniform(0, 10)
        hints[name] = {
            "adon.workers": str(round(_spread(rng, 2, 64))),
            "adon.queue_wait": f"{wait:.1f} s",
        }
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            hints[a][f"adon.bandwidth.{b}"] = f"{_spread(rng, 10, 100_000):.1f} Mb/s"
            hints[a][f"adon.rtt.{b}"] = f"{_spread(rng, 1, 200):.1f} ms"
    sites = [_site(name, hints[name]) for name in names]
    _dump(folder / "sites.yml", {"pegasus": _VERSION, "sites": sites})
    replicas = yaml.load((folder / "replicas.yml").read_text(), Loader=_LOADER)
    for entry in replicas["replicas"]:
        entry["pfns"] = [{"site": store, "pfn": f"gsiftp://{store}/storage/{entry['lfn']}"}]
    _dump(folder / "replicas.yml", replicas)
    programs = yaml.load((folder / "transformations.yml").read_text(), Loader=_LOADER)
    for entry in programs["transformations"]:
        runtime = float(entry["profiles"]["pegasus"]["runtime"])
        entry["sites"] = [
            {
                "name": site,
                "pfn": f"/opt/{entry['name']}",
                "type": "installed",
                "profiles": {"pegasus": {"runtime": f"{runtime / speed[site]:.6f}"}},
            }
            for site in computing
        ]
    _dump(folder / "transformations.yml", programs)
    return store


def _site(name: str, hints: dict[str, str]) -> dict[str, Any]:
    server = {"url": f"gsiftp://{name}/scratch", "operation": "all"}
    scratch = {"type": "sharedScratch", "path": "/scratch", "fileServers": [server]}
    return {
        "name": name,
        "arch": "x86_64",
        "os.type": "linux",
        "directories": [scratch],
        "profiles": {"pegasus": hints},
    }


def _spread(rng: Random, low: float, high: float) -> float:
    """Between the two, every factor as likely."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _dump(path: Path, root: Any) -> None:
    path.write_text(yaml.dump(root, Dumper=_DUMPER, sort_keys=False))
