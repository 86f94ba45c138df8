"""Small YAML files that people write: read strictly, refused with the line.

Plain YAML is enough for configuration. What has other uses is refused: tags, a key given twice, and
structures that are deep or, by aliases, far larger than the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from network_provisioner.base.errors import AbsentError, InputError
from site_selector.catalogs.documents import build_tree

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_VALUES = 100_000
_TAB = re.compile(r"\s*\t")  # YAML takes none in front of a line


def read_yaml(path: Path) -> Any:
    """The plain values of a YAML file, which is not empty. Raises InputError that names file and,
    where known, line."""
    text = _text(path)
    try:
        values = build_tree(text, typed=True, depth=MAX_DEPTH, aliased=MAX_VALUES)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else "?"
        problem = " ".join((error.problem or "cannot be parsed").split())
        if mark and any(map(_TAB.match, text.splitlines()[mark.line : mark.line + 1])):
            raise InputError(f"{path}, line {line}: found a tab, expected spaces") from None
        raise InputError(f"{path}, line {line}: {problem}, expected YAML") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}, expected YAML") from None
    if values is None:
        raise AbsentError(path, "found nothing in it, expected YAML")
    return values


def _text(path: Path) -> str:
    try:
        # Not more than can be meant: a device may have no end.
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"{path}: found more than 1 MB, expected a short YAML file")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise AbsentError(path, "found no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: found bytes that are not UTF-8, expected YAML text") from None
