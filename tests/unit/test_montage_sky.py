"""Montage's made-up sky: its projections, its files, and tiles that overlap everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.montage import fits
from examples.montage.sky import DEGREE_PX, Frame, Recipe, Sky
from network_provisioner.base.errors import InputError

SEEDS = st.integers(0, 2**31 - 1)
FRAMES = st.builds(
    Frame,
    st.floats(5.0, 355.0),
    st.floats(-80.0, 80.0),
    st.integers(50, 3000),
    st.integers(50, 3000),
    st.floats(-180.0, 180.0),
)


@given(FRAMES, st.floats(0, 1), st.floats(0, 1))
def test_a_pixel_is_found_again_at_its_place(frame: Frame, x: float, y: float) -> None:
    u, v = np.array([x * frame.width]), np.array([y * frame.height])
    assert np.allclose(frame.pixel(*frame.place(u, v)), (u, v), atol=1e-6)


def test_north_is_up_east_is_left_and_turns_are_those_of_crota2() -> None:
    ra, dec = np.array([210.0, 210.1]), np.array([20.1, 20.0])
    (up_x, left_x), (up_y, left_y) = Frame(210.0, 20.0, 601, 601).pixel(ra, dec)
    assert (up_x, left_y) == (pytest.approx(300), pytest.approx(300, abs=0.1))
    assert up_y - 300 == pytest.approx(0.1 * DEGREE_PX, rel=1e-4) and left_x < 300
    # By AIPS's convention the header's angle is that of north, from the y axis towards -x.
    (turned_x, _), (turned_y, _) = Frame(210.0, 20.0, 601, 601, turn=30.0).pixel(ra, dec)
    assert np.degrees(np.arctan2(turned_x - 300, turned_y - 300)) == pytest.approx(-30.0)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from([1, 2, 3, 7, 11]))
def test_tiles_leave_no_pixel_out_and_pairs_share_some(seed: int, tiles: int) -> None:
    sky = Sky(Recipe(tiles=tiles, seed=seed))
    axis = np.arange(0.0, sky.mosaic.width, 3)
    ra, dec = sky.mosaic.place(*np.meshgrid(axis, axis))
    inside = []
    for number, tile in enumerate(sky.tiles):
        x, y = tile.pixel(ra, dec)
        inside.append((x >= 0) & (x <= tile.width - 1) & (y >= 0) & (y <= tile.height - 1))
        left, low, width, height = sky.projected(number)
        rows, columns = (axis[found.any(axis=1 - n)] for n, found in enumerate([inside[-1]] * 2))
        assert low <= rows.min() and rows.max() <= low + height
        assert left <= columns.min() and columns.max() <= left + width
    assert np.any(inside, axis=0).all()
    assert all(np.any(inside[i] & inside[j]) for i, j in sky.pairs)
    assert len(sky.pairs) == 4 * tiles**2 - 6 * tiles + 2


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_stars_stand_apart_and_within_the_mosaic(seed: int) -> None:
    sky = Sky(Recipe(seed=seed))
    x, y = sky.mosaic.pixel(*sky.stars[:, :2].T)
    assert min(x.min(), y.min()) >= 18 and max(x.max(), y.max()) <= sky.mosaic.width - 19
    apart = np.hypot(x[:, None] - x, y[:, None] - y) + np.diag(np.full(len(x), 99.0))
    assert apart.min() >= 37


def test_a_tile_has_the_light_of_its_stars_and_a_background_of_its_own() -> None:
    sky = Sky(Recipe(tiles=1))
    one, other = sky.image(0, 0), sky.image(0, 1)
    assert np.array_equal(one, Sky(Recipe(tiles=1)).image(0, 0))
    assert abs(np.median(one) - np.median(other)) > 1
    tile, (ra, dec, flux, *_) = sky.tiles[0], sky.stars[len(sky.stars) // 2]
    x, y = (round(float(at)) for at in tile.pixel(ra, dec))
    stamp = one[y - 12 : y + 13, x - 12 : x + 13]
    assert (stamp - np.median(one)).sum() == pytest.approx(flux, rel=0.05)


def test_an_image_is_read_as_it_was_written(tmp_path: Path) -> None:
    frame = Frame(210.0, 20.0, 7, 5)
    pixels = np.arange(35.0).reshape(5, 7)
    content = fits.image_bytes(frame.header, pixels)
    assert len(content) == fits.file_bytes(7, 5, 4) == 2 * 2880
    (tmp_path / "a.fits").write_bytes(content)
    assert np.array_equal(fits.read_image(tmp_path / "a.fits"), pixels)
    cards = [content[at : at + 80].decode() for at in range(0, 2880, 80)]
    assert cards[0] == f"{'SIMPLE  =                    T':<80}" and "END".ljust(80) in cards
    assert all(re.fullmatch(r"[A-Z0-9]{1,8} *= .{20,} *|END *| *", card) for card in cards)
    assert all(len(line) == 80 for line in fits.template(frame.header).splitlines())


@pytest.mark.parametrize("content", [b"", b"no FITS at all" * 400, b"BITPIX  =   8".ljust(2880)])
def test_what_is_no_image_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.fits").write_bytes(content)
    with pytest.raises(InputError, match="expected a FITS image"):
        fits.read_image(tmp_path / "a.fits")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"degree": 0}, "degree: found 0, expected 1 to 10"),
        ({"bands": 4}, "bands: found 4, expected 1 to 3"),
        ({"tiles": 13}, "tiles: found 13 on 1°, expected 11 at most"),
    ],
)
def test_a_mosaic_that_cannot_be_is_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe(**wrong)
