"""As much of FITS as the example needs: one image with its header, and headers as templates."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from examples.montage.sky import Header, Pixels
from network_provisioner.base.errors import InputError

_BLOCK, _CARD = 2880, 80
_TYPES = {-32: ">f4", -64: ">f8"}


def image_bytes(header: Header, pixels: Pixels) -> bytes:
    """A file with an image in single precision."""
    head = _text({"SIMPLE": True, "BITPIX": -32, **header}, "")
    data = pixels.astype(">f4").tobytes()
    return _padded(head.encode(), b" ") + _padded(data, b"\0")


def file_bytes(width: int, height: int, depth: int) -> int:
    """The size of a file with an image of ``depth`` bytes in each pixel."""
    return _BLOCK + -(-width * height * depth // _BLOCK) * _BLOCK


def template(header: Header) -> str:
    """The header alone, as Montage's programs read it from a file."""
    return _text({"SIMPLE": True, "BITPIX": -64, **header}, "\n")


def read_image(path: Path) -> Pixels:
    """The pixels of an image of floating-point numbers. Raises InputError, OSError."""
    raw = path.read_bytes()
    header: dict[str, str] = {}
    at = 0
    while "END" not in header and at < len(raw):
        card = raw[at : at + _CARD].decode("ascii", "replace")
        header[card[:8].strip()] = card[10:].partition("/")[0].strip()
        at += _CARD
    try:
        kind = np.dtype(_TYPES[int(header["BITPIX"])])
        width, height = int(header["NAXIS1"]), int(header["NAXIS2"])
        start = -(-at // _BLOCK) * _BLOCK
        flat = np.frombuffer(raw, kind, width * height, start)
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}: found {error!r}, expected a FITS image") from None
    return flat.reshape(height, width).astype(float)


def _text(header: Header, end: str) -> str:
    cards = [f"{name:<8}= {_value(value)}" for name, value in header.items()]
    return "".join(f"{card:<{_CARD}}{end}" for card in [*cards, "END"])


def _value(value: object) -> str:
    if isinstance(value, bool):
        return f"{'T' if value else 'F':>20}"
    return f"{value!r:<20}" if isinstance(value, str) else f"{value:>20}"


def _padded(data: bytes, filler: bytes) -> bytes:
    return data + filler * (-len(data) % _BLOCK)
