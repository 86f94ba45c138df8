"""Changes of a YAML file's text: what is not meant stays as it is, comments and layout too. Pure.

PyYAML reports the position of each value. (ruamel.yaml keeps comments, but lays the rest out anew.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

Keys = Sequence[str | int]


def flow(value: object) -> str:
    """A value in one line."""
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=1_000_000)
    return text.removesuffix("...\n").strip()


def with_value(text: str, keys: Keys, value: object) -> str:
    """The text with ``value`` at these keys and indices; mappings that it lacks are made."""
    parent, key = _at(_root(text), keys[:-1]), keys[-1]
    if isinstance(parent, yaml.SequenceNode) and isinstance(key, int):
        return _replaced(text, parent.value[key], value)
    if not isinstance(parent, yaml.MappingNode):
        return with_value(text, keys[:-1], {key: value})
    body = f" {flow(value)}"
    if not parent.flow_style:
        body = _body(value, parent.start_mark.column + 2, is_section=len(keys) == 1)
    for name, old in parent.value:
        if name.value == key:
            start = old.start_mark.index
            is_there = start < old.end_mark.index
            return _replaced(text, old, value) if is_there else text[:start] + body + text[start:]
    return _with_item(text, parent, f"{flow(key)}:{body}")


def with_appended(text: str, keys: Keys, value: object) -> str:
    """The text with one more item in the sequence at these keys, which begins with it where there
    is none."""
    node = _at(_root(text), keys)
    if not isinstance(node, yaml.SequenceNode):
        return with_value(text, keys, [value])
    return _with_item(text, node, flow(value), "- ")


def _body(value: object, indent: int, is_section: bool = False) -> str:
    """What follows a key in block style: a section's keys, and what has keys in a list, each in a
    line."""
    line = "\n" + " " * indent
    if is_section and isinstance(value, dict) and value:
        return "".join(f"{line}{flow(k)}:{_body(v, indent + 2)}" for k, v in value.items())
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "".join(f"{line}- {flow(item)}" for item in value)
    return f" {flow(value)}"


def _replaced(text: str, old: yaml.Node, value: object) -> str:
    return text[: old.start_mark.index] + flow(value) + text[_end(old) :]


def _root(text: str) -> yaml.Node:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None, "it was read before"
    return node


def _at(node: yaml.Node | None, keys: Keys) -> yaml.Node | None:
    """None if there is no such value."""
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            node = next((value for name, value in node.value if name.value == key), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
        else:
            return None
    return node


def _with_item(text: str, parent: yaml.CollectionNode, item: str, mark: str = "") -> str:
    """The text with an item at the end of a mapping or a sequence."""
    if parent.flow_style:
        last = parent.value[-1] if parent.value else None
        end = parent.start_mark.index + 1 if last is None else _end(_value(last))
        return text[:end] + (", " if last else "") + item + text[end:]
    line_end = text.find("\n", len(text[: _end(parent)].rstrip()))
    line_end = len(text) if line_end < 0 else line_end
    indent = " " * parent.start_mark.column
    return f"{text[:line_end]}\n{indent}{mark}{item}{text[line_end:]}"


def _value(item: Any) -> yaml.Node:
    node: yaml.Node = item[1] if isinstance(item, tuple) else item
    return node


def _end(node: yaml.Node) -> int:
    """Where a value ends; PyYAML counts what follows a block to it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        return _end(_value(node.value[-1]))
    return int(node.end_mark.index)
