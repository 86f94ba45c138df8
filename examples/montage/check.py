#!/usr/bin/env python3
"""Compare a mosaic with the sky that it was made of.

    check.py --truth DIR/truth.json --mosaics FOLDER

Stars: the light within four standard deviations of each star, less the background around it,
against its flux; the worst of all stars and bands has to be within 1 %. Seams: the largest step of
the background from one small block to the next, where no star is; it has to be below 1 count, where
tiles differ by up to 40. Prints one JSON object. Exit status: 0 both held, 1 one did not, 2 input
that cannot be read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.montage.fits import read_image
from examples.montage.sky import PSF_PX, Frame, Pixels, Recipe, Sky
from examples.workflows import Parser
from network_provisioner.base.errors import InputError

FLUX_GOAL, SEAM_GOAL = 0.01, 1.0
_APERTURE_PX, _SKY_PX = 4 * PSF_PX, 6 * PSF_PX
_BLOCK_PX = 40  # a star hides no whole one


def flux_errors(image: Pixels, stars: Iterable[Pixels], frame: Frame, band: int) -> list[float]:
    """Of each star, what was measured against what is known: 0.01 is 1 % too bright."""
    errors = []
    for ra, dec, *flux in stars:
        x, y = (float(axis) for axis in frame.pixel(ra, dec))
        reach = round(_SKY_PX)
        top, left = round(y) - reach, round(x) - reach
        part = image[top : top + 2 * reach + 1, left : left + 2 * reach + 1]
        v, u = np.mgrid[: part.shape[0], : part.shape[1]]
        far = np.hypot(u + left - x, v + top - y)
        inside = far <= _APERTURE_PX
        around = (far > _APERTURE_PX) & (far <= _SKY_PX)
        light = part[inside].sum() - np.median(part[around]) * np.count_nonzero(inside)
        errors.append(float(light / flux[band]) - 1)
    return errors


def largest_step(image: Pixels, sky: Sky, band: int) -> float:
    """The largest step of the background between neighbouring blocks, in counts: what one differs
    from the line through those beside it."""
    rest = image - sky.glow(sky.mosaic, band)
    for x, y in zip(*sky.mosaic.pixel(*sky.stars[:, :2].T), strict=True):
        rows, columns = (slice(round(at - _SKY_PX), round(at + _SKY_PX) + 1) for at in (y, x))
        rest[rows, columns] = np.nan
    # Overlaps cannot tell what all tiles slope alike.
    seen = ~np.isnan(rest)
    plane = np.column_stack([*(axis.ravel() for axis in sky.mosaic.grid), np.ones(rest.size)])
    slope = np.linalg.lstsq(plane[seen.ravel()], rest[seen], rcond=None)[0]
    rest -= (plane @ slope).reshape(rest.shape)
    blocks = sky.mosaic.width // _BLOCK_PX
    means = np.nanmean(rest.reshape(blocks, _BLOCK_PX, blocks, _BLOCK_PX), axis=(1, 3))
    return float(max(np.abs(np.diff(means, n=2, axis=axis)).max() for axis in (0, 1)))


def figures(recipe: Recipe, mosaics: Path) -> dict[str, float]:
    """What is asked of the mosaics of a recipe in a folder. Raises InputError, OSError."""
    sky = Sky(recipe)
    errors: list[float] = []
    steps = []
    for band, name in enumerate(sky.bands):
        # Where a mosaic is blank it has nothing, which is a seam and a missing star.
        image = np.nan_to_num(read_image(mosaics / f"{name}-mosaic.fits"))
        if image.shape != (sky.mosaic.height, sky.mosaic.width):
            raise InputError(
                f"{name}-mosaic.fits: found {image.shape} pixels, expected {sky.mosaic.width} each"
            )
        errors += flux_errors(image, sky.stars, sky.mosaic, band)
        steps.append(largest_step(image, sky, band))
    return {
        "stars": len(sky.stars),
        "bands": len(sky.bands),
        "worst_flux_error": max(map(abs, errors)),
        "median_flux_error": float(np.median(np.abs(errors))),
        "largest_background_step": max(steps),
    }


def held(numbers: Mapping[str, float]) -> bool:
    """Whether both goals were met."""
    return (
        numbers["worst_flux_error"] <= FLUX_GOAL and numbers["largest_background_step"] <= SEAM_GOAL
    )


def main(argv: list[str] | None = None) -> int:
    """Do what the options say."""
    parser = Parser(__doc__)
    parser.add_argument("--truth", type=Path, required=True, help="truth.json of the workflow")
    parser.add_argument("--mosaics", type=Path, required=True, help="folder with the mosaics")
    options = parser.parse_args(argv)
    try:
        results = figures(Recipe(**json.loads(options.truth.read_text())), options.mosaics)
    except (InputError, OSError, ValueError, TypeError) as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(results))
    return 0 if held(results) else 1


if __name__ == "__main__":
    sys.exit(main())
