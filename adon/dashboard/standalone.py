"""A page that stands alone: the dashboard's modules that draw, and the values that they draw, in
one HTML file. It loads nothing and speaks with nobody."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:function|const) (\w+))", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that ``figures.js`` draws: ``kind`` is one of its functions, ``values`` what that
    takes."""

    kind: str
    values: Any
    heading: str = ""
    note: str = ""


def page(title: str, figures: Sequence[Figure]) -> str:
    """The whole page, in the dashboard's style; names may have any letters."""
    values: dict[str, list[Any]] = {}
    body = []
    for figure in figures:
        same = values.setdefault(figure.kind, [])
        body.append(
            (f"<h2>{escape(figure.heading)}</h2>" if figure.heading else "")
            + (f'<p class="soft">{escape(figure.note)}</p>' if figure.note else "")
            + f'<div class="wide" data-draw="{figure.kind}" data-number="{len(same)}"></div>'
        )
        same.append(figure.values)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy()}">
<title>{escape(title)}</title><style>{style()}</style></head><body>
<main><h1>{escape(title)}</h1><noscript><p>The drawings need JavaScript.</p></noscript>
{"".join(body)}</main>{scripts(values)}</body></html>
"""


def style() -> str:
    """The dashboard's, with that of the drawings."""
    return _text("style.css") + _text("figures.css")


def policy() -> str:
    """What the page may do: its own style, and the one script whose words are these."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def scripts(values: Mapping[str, Iterable[Any]]) -> str:
    """The end of a page: figures by kind, in which nothing can end the element that they are in,
    and what draws the ``number``-th of a kind in ``<div data-draw=kind data-number=number>``."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="data">{text}</script>'
        f'<script type="module">{_script()}</script>'
    )


@cache
def _script() -> str:
    return bundle("figures.js", _text)


def _text(name: str) -> str:
    return (files("adon.dashboard") / name).read_text(encoding="utf-8")


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """One script of a module and all that it imports, each in a scope of its own. ``read`` gives
    the text of a module by its name."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        text = read(name)
        for imported in _IMPORT.finditer(text):
            add(imported[2])
        exported = ", ".join(_EXPORT.findall(text))
        body = _IMPORT.sub(lambda m: f"const {{{m[1]}}} = {_scope(m[2])};", text)
        body = _EXPORT.sub("", body)
        done[name] = f"const {_scope(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"

    add(entry)
    return "".join(done.values())


def _scope(module: str) -> str:
    return f"${Path(module).stem}"
