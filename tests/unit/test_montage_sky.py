"""Montage's made-up sky: its projections, its files, and tiles that overlap everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.montage import fits
from examples.montage.sky import Frame, Recipe, Sky
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


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from([1, 2, 3, 7, 11]))
def test_tiles_leave_no_pixel_out_and_pairs_share_some(seed: int, tiles: int) -> None:
    sky = Sky(Recipe(tiles=tiles, seed=seed))
    axis = np.arange(0.0, sky.mosaic.width, 3)
    ra, dec = sky.mosaic.place(*np.meshgrid(axis, axis))
    inside = []
    for tile in sky.tiles:
        x, y = tile.pixel(ra, dec)
        inside.append((x >= 0) & (x <= tile.width - 1) & (y >= 0) & (y <= tile.height - 1))
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


def test_an_image_is_read_as_it_was_written(tmp_path: Path) -> None:
    frame = Frame(210.0, 20.0, 7, 5)
    pixels = np.arange(35.0).reshape(5, 7)
    content = fits.image_bytes(frame.header, pixels)
    assert len(content) == fits.file_bytes(7, 5, 4) == 2 * 2880
    (tmp_path / "a.fits").write_bytes(content)
    assert np.array_equal(fits.read_image(tmp_path / "a.fits"), pixels)
    with pytest.raises(InputError, match="expected a FITS image"):
        fits.read_image(Path(__file__))
    assert all(len(line) == 80 for line in fits.template(frame.header).splitlines())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"degree": 0}, "degree: found 0, expected 1 to 5"),
        ({"bands": 4}, "bands: found 4, expected 1 to 3"),
        ({"tiles": 13}, "tiles: found 13 on 1°, expected 11 at most"),
    ],
)
def test_a_mosaic_that_cannot_be_is_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe(**wrong)
