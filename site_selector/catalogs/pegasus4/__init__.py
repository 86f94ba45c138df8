"""Files in the forms of Pegasus 4, which pegasus-plan 5.1 reads as well: workflows (``<adag>``, DAX
1 to 3) and site catalogs (``<sitecatalog>``, version 4) in XML, transformation catalogs as text.

Each becomes what the same file says in the YAML of Pegasus 5.
"""

from __future__ import annotations

import re

from site_selector.catalogs.pegasus4 import catalog_text, dax, site_catalog
from site_selector.catalogs.pegasus4.elements import Converted, FormError, parsed

__all__ = ["FormError", "converted", "is_text", "is_xml"]

_TEXT = re.compile(r"(?:\s|#[^\n]*\n)*(?:tr|cont)\s+[^\s{]+\s*\{")
_ROOT = re.compile(r"<(?:[\w.-]+:)?(?:adag|sitecatalog)[\s>/]")
_SEEN = 20_000


def is_xml(text: str) -> bool:
    """Whether it is meant to be XML."""
    return text[:_SEEN].lstrip().startswith("<")


def is_text(text: str) -> bool:
    """Whether it is meant to be a transformation catalog as text."""
    return _TEXT.match(text[:_SEEN]) is not None


def converted(text: str) -> Converted | None:
    """What a file says; None for one in no form of Pegasus 4 that is read here. Raises FormError
    where it is not written as such a file must be."""
    if is_text(text):
        return catalog_text.read(text)
    if not is_xml(text) or not _ROOT.search(text[:_SEEN]):
        return None
    root = parsed(text)
    version = root.attributes.get("version", "")
    if root.name == "adag" and version[:1] in ("", "1", "2", "3"):
        return dax.read(root)
    if root.name == "sitecatalog" and version[:1] == "4":
        return site_catalog.read(root)
    return None
