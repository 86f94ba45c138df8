#!/usr/bin/env python3
"""Write a Montage workflow with its catalogs, and make the sky that it is about.

    workflow.py --out DIR [--degree 1] [--bands 3] [--tiles 3] [--seed 1] [--testbed FILE]
    workflow.py --out DIR --tiles 11                                       # 2,002 jobs

DIR gets workflow.yml, sites.yml, replicas.yml, transformations.yml, pegasus.properties and
truth.json. The catalogs name example hosts and the data go to DIR/inputs; with --testbed they are
those of testbed.json and the data go to the head node's storage. B bands of T × T tiles make
1 + B·(6·T² - 6·T + 7) jobs. The same options give the same files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.montage import fits
from examples.montage.sky import Recipe, Sky
from examples.workflows import Parser, catalogs, places
from examples.workflows.catalogs import SiteEstimate
from examples.workflows.files import put, sha256, write_plan
from examples.workflows.jobs import Jobs
from network_provisioner.base.errors import InputError

NAME = "montage"
HEAD = "local"
EXECUTION = ("fiu", "nicta")
TOOLS = Path(__file__).resolve().parent / "tools"
REGION = "region.hdr"
COLOUR = "mosaic-color.png"
TABLES = ("projected", "corrected")
"""Those of a band's tiles that are there before they are made."""
_HOSTS = {
    HEAD: ("head.montage.example.org", 1),
    "fiu": ("fiu.montage.example.net", 8),
    "nicta": ("nicta.montage.example.net", 4),
}
_SITE_ESTIMATES = {site: SiteEstimate(rate="500 kB/s", queue_wait="3 s") for site in _HOSTS}
_BANDWIDTH = "40 Mb/s"
_RANGE = ("0s", "99.99%", "gaussian-log")  # from a band's background to its brightest stars
_MODEL_TURNS = 10_000
# Seconds per million pixels of a tile, or of the mosaic where a program reads all of it.
_OF_TILE_S = {"mProject": 16.0, "mDiffFit": 2.0, "mBackground": 1.0}
_OF_MOSAIC_S = {
    "mConcatFit": 0.1, "mBgModel": 0.1, "mImgtbl": 0.1, "mAdd": 1.0, "mViewer": 1.0,
}  # fmt: skip


class Mosaic(Jobs):
    """The workflow's jobs, band by band, and its tables. Files are named by their band and tile;
    projected ones begin with ``p-``, those with a common background with ``c-``. With ``keep_all``
    the tiles are results, too."""

    def __init__(self, sky: Sky, inputs: Mapping[str, int], keep_all: bool = False) -> None:
        super().__init__(NAME, NAME, inputs, lambda lfn: _size_of(sky, lfn))
        self._sky = sky
        self.workflow.add_metadata(project=NAME, **sky.recipe.as_dict())
        for band in sky.bands:
            self._add_band(band, keep_all)
        chosen = (sky.bands[0], sky.bands[len(sky.bands) // 2], sky.bands[-1])
        args = [word for colour, band in zip(("red", "green", "blue"), chosen, strict=True)
                for word in (f"-{colour}", _mosaic(band), *_RANGE)]  # fmt: skip
        mosaics = tuple(_mosaic(band) for band in sky.bands)
        self.job("mViewer", (*args, "-out", COLOUR), mosaics, (COLOUR,), publish=True)

    def _add_band(self, band: str, keep_all: bool) -> None:
        add = partial(self.job, band=band)
        before, after, fitted, corrections, images = (
            f"{band}-{of}.tbl" for of in (*TABLES, "fits", "corrections", "images")
        )
        tiles = [_tile(band, n) for n in range(len(self._sky.tiles))]
        projected, corrected = ([f"{first}-{tile}" for tile in tiles] for first in "pc")
        for raw, new in zip(tiles, projected, strict=True):
            add("mProject", (raw, new, REGION), (raw, REGION), _with_area(new), publish=keep_all)
        planes = tuple(f"{band}-{i:03d}-{j:03d}.txt" for i, j in self._sky.pairs)
        for (i, j), plane in zip(self._sky.pairs, planes, strict=True):
            first, second = projected[i], projected[j]
            reads: tuple[str, ...] = (*_with_area(first), *_with_area(second), REGION)
            add("mDiffFit", (i, j, first, second, REGION, plane), reads, (plane,))
        add("mConcatFit", (fitted, *planes), planes, (fitted,))
        model = ("-i", _MODEL_TURNS, before, fitted, corrections)
        add("mBgModel", model, (before, fitted), (corrections,))
        for old, new in zip(projected, corrected, strict=True):
            reads = (*_with_area(old), before, corrections)
            add(
                "mBackground",
                ("-t", old, new, before, corrections),
                reads,
                _with_area(new),
                publish=keep_all,
            )
        add("mImgtbl", ("-t", after, ".", images), (after, *corrected), (images,))
        mosaic, picture = _mosaic(band), f"{band}.png"
        reads = (images, REGION, *(file for name in corrected for file in _with_area(name)))
        add("mAdd", ("-e", images, REGION, mosaic), reads, _with_area(mosaic), publish=True)
        options = ("-ct", 1, "-gray", mosaic, *_RANGE, "-out", picture)
        add("mViewer", options, (mosaic,), (picture,), publish=True)


def _tile(band: str, number: int) -> str:
    return f"{band}-{number:03d}.fits"


def _mosaic(band: str) -> str:
    return f"{band}-mosaic.fits"


def _with_area(image: str) -> tuple[str, str]:
    """An image and how much of each pixel it covers, as Montage's programs name it."""
    return image, f"{image.removesuffix('.fits')}_area.fits"


def _size_of(sky: Sky, lfn: str) -> int:
    """Bytes expected of a file that a job makes."""
    if not lfn.endswith(".fits"):
        return sky.mosaic.width**2 if lfn.endswith(".png") else 300 * len(sky.tiles)
    frame = sky.mosaic if "mosaic" in lfn else sky.tiles[0]
    return fits.file_bytes(frame.width, frame.height, 8)


def runtimes_s(sky: Sky) -> dict[str, float]:
    """Seconds expected of each program."""
    tile, mosaic = sky.tiles[0].width ** 2 / 1e6, sky.mosaic.width**2 / 1e6
    return {name: s * tile for name, s in _OF_TILE_S.items()} | {
        name: s * mosaic for name, s in _OF_MOSAIC_S.items()
    }


def make_inputs(sky: Sky) -> dict[str, bytes]:
    """All files that are there before the first job."""
    made = {REGION: fits.template(sky.mosaic.header).encode()}
    for band, colour in enumerate(sky.bands):
        for kind in TABLES:
            names = [f"{kind[0]}-{_tile(colour, n)}" for n in range(len(sky.tiles))]
            made[f"{colour}-{kind}.tbl"] = _table(sky, names)
        for n, tile in enumerate(sky.tiles):
            made[_tile(colour, n)] = fits.image_bytes(tile.header, sky.image(n, band))
    return made


def _table(sky: Sky, names: list[str]) -> bytes:
    """A table of projected tiles as mBgModel and mBackground read it."""
    lines = ["| cntr |      fname         |naxis1|naxis2|  crpix1 |  crpix2 |"]
    for n, name in enumerate(names):
        x, y, width, height = sky.projected(n)
        middle = (sky.mosaic.width + 1) / 2
        lines.append(
            f" {n:6d} {name:>20} {width:6d} {height:6d} {middle - x:9.1f} {middle - y:9.1f} "
        )
    return "\n".join([*lines, ""]).encode()


def write(
    recipe: Recipe,
    out: Path,
    testbed: Path | None = None,
    racks: Sequence[str] = EXECUTION,
    keep_all: bool = False,
) -> str:
    """Write data, workflow and catalogs for workers at ``racks``; returns one sentence about it.
    With ``keep_all`` every tile is wanted back. Raises InputError, OSError."""
    sky = Sky(recipe)
    hosts = {site: _HOSTS[site] for site in (HEAD, *racks)}
    if testbed is None:
        sites, inputs = places.example_places(NAME, hosts), out.resolve() / "inputs"
        folder = f"{sites[HEAD].storage}/{NAME}"
    else:
        sites = places.testbed_places(testbed, hosts, TOOLS)
        inputs = Path(sites[HEAD].storage) / NAME
        folder = str(inputs)
    (out / "workflow.yml").unlink(missing_ok=True)
    for directory in (out, inputs):
        directory.mkdir(parents=True, exist_ok=True)
    made = make_inputs(sky)
    for name, content in made.items():
        put(inputs / name, content)
    sizes = {name: len(content) for name, content in made.items()}
    put(out / "truth.json", (json.dumps(recipe.as_dict()) + "\n").encode())
    mosaic = Mosaic(sky, sizes, keep_all)

    def installed(program: str) -> dict[str, str]:
        own = (TOOLS / program).is_file()
        return {
            site: f"{sites[site].tools if own else sites[site].packages}/{program}"
            for site in racks
        }

    write_plan(
        out.resolve(),
        mosaic.workflow,
        catalogs.site_catalog(sites, _SITE_ESTIMATES, lambda _one, _other: _BANDWIDTH),
        catalogs.replica_catalog(
            sites[HEAD], folder, sizes, {name: sha256(inputs / name) for name in sizes}
        ),
        catalogs.transformation_catalog(NAME, runtimes_s(sky), installed),
    )
    return (
        f"{out}: {len(mosaic.workflow.jobs):,} jobs over {recipe.bands} bands of {len(sky.tiles)} "
        f"tiles, {recipe.degree}° wide, {sum(sizes.values()):,} bytes of input"
    )


def main(argv: list[str] | None = None) -> int:
    """Do what the options say."""
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write into")
    parser.add_argument("--testbed", type=Path, help="testbed.json of a running test bed")
    for field in fields(Recipe):
        parser.add_argument(
            f"--{field.name}", type=int, default=field.default, help=f"({field.default})"
        )
    chosen = parser.parse_args(argv)
    try:
        recipe = Recipe(**{field.name: getattr(chosen, field.name) for field in fields(Recipe)})
        print(write(recipe, chosen.out, chosen.testbed))
    except (InputError, OSError) as error:
        print(f"workflow.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
