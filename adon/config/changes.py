"""What differs between two configurations, by the names of keys alone: values may be secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from adon.config.sections import Config
from network_provisioner.base.errors import printable

_MOST = 20


def changes_text(before: Config, after: Config) -> str:
    """The keys whose values differ, as ``topology.links.s1-s2.capacity``; in a few words."""
    keys = list(dict.fromkeys(_changed("", before.model_dump(), after.model_dump())))
    more = f" and {len(keys) - _MOST} more" if len(keys) > _MOST else ""
    return f"changed: {printable(', '.join(keys[:_MOST]))}{more}" if keys else "no key changed"


def _changed(key: str, before: Any, after: Any) -> Iterator[str]:
    if before == after:
        return
    old, new = _items(before), _items(after)
    if old is None or new is None or old == new:  # in another order, too
        yield key
        return
    for name in {**old, **new}:
        place = f"{key}.{name}" if key else str(name)
        if name in old and name in new:
            yield from _changed(place, old[name], new[name])
        else:
            yield place


def _items(value: Any) -> Mapping[Any, Any] | None:
    """What a mapping holds, or a list of what has names, or ends as links have."""
    if isinstance(value, list):
        try:
            return {item.get("name") or f"{item['a']}-{item['b']}": item for item in value}
        except (AttributeError, KeyError):
            return None
    return value if isinstance(value, Mapping) else None
