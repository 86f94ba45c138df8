"""A made-up sky: stars and a glow in up to three bands, and the tiles that a survey took of it.

Pure, and the same recipe gives the same pixels.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from network_provisioner.base.errors import InputError

Pixels = NDArray[np.float64]
Header = dict[str, Any]

BANDS = ("red", "green", "blue")
DEGREE_PX = 600
"""Pixels of a degree: 6 arc seconds each."""
PSF_PX = 3.0
"""Standard deviation of a star's image."""
MOST_DEGREE, MOST_TILES = 5, 30
_CENTRE = (210.0, 20.0)
_SCALE = DEGREE_PX * 180 / np.pi  # pixels of a radian
_STAR_CELL_PX = 75  # one star in the inner half of each square of this many: none is near another
_FLUX = (60_000.0, 300_000.0)
_TILE = 1.4  # the width of a tile, in distances to the next one
_DITHER, _TURN_DEG = 0.08, 3.0  # of a tile at most, in the same distances and in degrees
_LEVEL, _OFFSET, _SLOPE = 100.0, 20.0, 8.0  # of backgrounds; the slope is from centre to edge
_GLOW, _NOISE = 12.0, 1.0
_LEAST_STEP_PX = 54  # between tiles: nearer ones share too little to tell a plane by


@dataclass(frozen=True, slots=True)
class Frame:
    """A gnomonic projection (TAN) of the sky on ``width`` × ``height`` pixels.

    Its centre is at ``ra``, ``dec``, and it is turned by ``turn``; all in degrees.
    """

    ra: float
    dec: float
    width: int
    height: int
    turn: float = 0.0

    @property
    def header(self) -> Header:
        """What a FITS header says of it."""
        return {
            "NAXIS": 2,
            "NAXIS1": self.width,
            "NAXIS2": self.height,
            "CTYPE1": "RA---TAN",
            "CTYPE2": "DEC--TAN",
            "CRVAL1": self.ra,
            "CRVAL2": self.dec,
            "CRPIX1": (self.width + 1) / 2,
            "CRPIX2": (self.height + 1) / 2,
            "CDELT1": -1 / DEGREE_PX,
            "CDELT2": 1 / DEGREE_PX,
            "CROTA2": self.turn,
            "EQUINOX": 2000.0,
        }

    def pixel(self, ra: Pixels, dec: Pixels) -> tuple[Pixels, Pixels]:
        """Where places in the sky (degrees) are, in pixels from 0."""
        a, d, d0 = np.radians(ra - self.ra), np.radians(dec), np.radians(self.dec)
        depth = np.sin(d) * np.sin(d0) + np.cos(d) * np.cos(d0) * np.cos(a)
        east = np.cos(d) * np.sin(a) / depth
        north = (np.sin(d) * np.cos(d0) - np.cos(d) * np.sin(d0) * np.cos(a)) / depth
        cos, sin = np.cos(np.radians(self.turn)), np.sin(np.radians(self.turn))
        x, y = -east * cos - north * sin, north * cos - east * sin
        return x * _SCALE + (self.width - 1) / 2, y * _SCALE + (self.height - 1) / 2

    def place(self, x: Pixels, y: Pixels) -> tuple[Pixels, Pixels]:
        """The places in the sky (degrees) of pixels, the inverse of :meth:`pixel`."""
        u, v = (x - (self.width - 1) / 2) / _SCALE, (y - (self.height - 1) / 2) / _SCALE
        cos, sin, d0 = (
            np.cos(np.radians(self.turn)),
            np.sin(np.radians(self.turn)),
            np.radians(self.dec),
        )
        east, north = -u * cos - v * sin, v * cos - u * sin
        depth = np.cos(d0) - north * np.sin(d0)
        a = np.arctan2(east, depth)
        d = np.arctan((np.sin(d0) + north * np.cos(d0)) * np.cos(a) / depth)
        return self.ra + np.degrees(a), np.degrees(d)

    @property
    def grid(self) -> tuple[Pixels, Pixels]:
        """The coordinates x and y of all its pixels."""
        y, x = np.mgrid[: self.height, : self.width].astype(float)
        return x, y


@dataclass(frozen=True, slots=True)
class Recipe:
    """How large the mosaic is, in degrees on each side, of how many bands, and of how many tiles
    in each row and column. Raises InputError if it cannot be made."""

    degree: int = 1
    bands: int = 3
    tiles: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least, most in (
            ("degree", 1, MOST_DEGREE),
            ("bands", 1, len(BANDS)),
            ("tiles", 1, MOST_TILES),
            ("seed", 0, 2**31 - 1),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(f"{name}: found {value}, expected {least} to {most}")
        densest = self.degree * DEGREE_PX // _LEAST_STEP_PX
        if self.tiles > densest:
            raise InputError(
                f"tiles: found {self.tiles} on {self.degree}°, expected {densest} at most"
            )

    def as_dict(self) -> dict[str, int]:
        """For a file that says what was made."""
        return asdict(self)


class Sky:
    """The stars of a recipe, and the survey's tiles.

    ``stars`` has a row for each: right ascension and declination in degrees, then the flux in each
    band in counts.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.bands = BANDS[: recipe.bands]
        side = recipe.degree * DEGREE_PX
        self.mosaic = Frame(*_CENTRE, side, side)

    @cached_property
    def stars(self) -> Pixels:
        dice = np.random.default_rng([self.recipe.seed, 0])
        cell = (np.arange(self.mosaic.width // _STAR_CELL_PX) + 0.5) * _STAR_CELL_PX - 0.5
        x, y = (axis.ravel() for axis in np.meshgrid(cell, cell))
        x, y = (axis + dice.uniform(-0.25, 0.25, x.size) * _STAR_CELL_PX for axis in (x, y))
        flux = np.exp(dice.uniform(np.log(_FLUX[0]), np.log(_FLUX[1]), x.size))
        red = dice.uniform(0.5, 1.5, x.size)
        colours = np.array([red, np.ones(x.size), 2 - red])
        return np.column_stack([*self.mosaic.place(x, y), *(flux * colours)])

    @cached_property
    def tiles(self) -> list[Frame]:
        """Of each band: dithered and turned, as surveys are, and as overlaps need it."""
        dice = np.random.default_rng([self.recipe.seed, 1])
        step = self.mosaic.width / self.recipe.tiles
        width = round(step * _TILE)
        frames = []
        for row in range(self.recipe.tiles):
            for column in range(self.recipe.tiles):
                x, y = (np.array([column, row]) + 0.5 + dice.uniform(-_DITHER, _DITHER, 2)) * step
                ra, dec = self.mosaic.place(x - 0.5, y - 0.5)
                turn = dice.uniform(-_TURN_DEG, _TURN_DEG)
                frames.append(Frame(float(ra), float(dec), width, width, float(turn)))
        return frames

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The tiles that overlap: neighbours in a row, a column or a diagonal."""
        side = self.recipe.tiles
        return [
            (i, j)
            for i, j in combinations(range(side**2), 2)
            if abs(i // side - j // side) <= 1 and abs(i % side - j % side) <= 1
        ]

    def projected(self, number: int) -> tuple[int, int, int, int]:
        """Where a tile lies in the mosaic: its first column and row, its width and height."""
        tile = self.tiles[number]
        edge = np.array([-0.5, tile.width - 0.5])
        corners = self.mosaic.pixel(*tile.place(*np.meshgrid(edge, edge)))
        (left, right), (low, high) = (
            (max(0, round(axis.min())), min(self.mosaic.width, round(axis.max()) + 1))
            for axis in corners
        )
        return left, low, right - left, high - low

    def glow(self, frame: Frame, band: int) -> Pixels:
        """The smooth light of a band in a frame."""
        x, y = self.mosaic.pixel(*frame.place(*frame.grid))
        middle, width = self.mosaic.width * (0.35 + 0.15 * band), self.mosaic.width / 5
        return _LEVEL + _GLOW * np.exp(-((x - middle) ** 2 + (y - middle) ** 2) / 2 / width**2)

    def image(self, number: int, band: int) -> Pixels:
        """Tile ``number`` of a band as the survey saw it: noise, and a background of its own."""
        tile = self.tiles[number]
        seen = self.glow(tile, band)
        for star in np.column_stack([*tile.pixel(*self.stars[:, :2].T), self.stars[:, 2 + band]]):
            _add_star(seen, *star)
        dice = np.random.default_rng([self.recipe.seed, 2, band, number])
        x, y = (axis / tile.width * 2 - 1 for axis in tile.grid)
        offset, *slope = dice.uniform(-1, 1, 3) * (_OFFSET, _SLOPE, _SLOPE)
        seen += offset + slope[0] * x + slope[1] * y
        return seen + dice.normal(0, _NOISE, seen.shape)


def _add_star(image: Pixels, x: float, y: float, flux: float) -> None:
    """Add a star to the part of an image that its light reaches."""
    reach = round(6 * PSF_PX)
    rows = slice(max(0, round(y) - reach), max(0, round(y) + reach + 1))
    columns = slice(max(0, round(x) - reach), max(0, round(x) + reach + 1))
    part = image[rows, columns]
    if part.size:
        v, u = np.mgrid[
            rows.start : rows.start + part.shape[0], columns.start : columns.start + part.shape[1]
        ]
        spread = np.exp(-((u - x) ** 2 + (v - y) ** 2) / 2 / PSF_PX**2)
        part += flux / (2 * np.pi * PSF_PX**2) * spread
