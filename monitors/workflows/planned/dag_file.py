"""Reads a DAG as DAGMan does, with the files that it is made of.

    JOB align align.sub DIR there        SUBDAG EXTERNAL inner inner.dag
    FINAL tidy { … }                     SPLICE mid mid.dag       its nodes are mid+…
    VARS align n="3"                     INCLUDE more.dag
    PARENT align mid CHILD tidy          CONNECT mid other        with PIN_IN and PIN_OUT

A splice named as a child means its first nodes, as a parent its last ones. Words may be quoted
with ' or ", whole or in part. Lines that are not understood are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from monitors.workflows.planned.foreign_files import read_text, resolved
from network_provisioner.base.errors import InputError

_DEEPEST = 20  # files in each other
_NODES = frozenset({"JOB", "NODE", "FINAL", "SERVICE", "PROVISIONER"})
_SERVICES = frozenset({"SERVICE", "PROVISIONER"})
_ALL = "ALL_NODES"
_NO_VARIABLES: Mapping[str, str] = {}  # of most nodes, so that each has none of its own
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_WORD = re.compile(rf"""(?:[^\s"']+|{_QUOTED}|["'])+""")
_PIECE = re.compile(rf"({_QUOTED})|[^\"']+|.")
_VARIABLE = re.compile(rf"""(?<![^\s"'=])([^\s"'=]+)\s*=\s*({_QUOTED}|[^\s"']+)""")
_UNLESS = re.compile(r"\sUNLESS[-_]EXIT\s+(-?\d{1,9})\s*\Z", re.IGNORECASE)
_LATER = re.compile(r"\s*\S+\s+APPEND\s", re.IGNORECASE)


def text_of(path: Path) -> str:
    """A file as text. Raises InputError where it cannot be read."""
    try:
        return read_text(path, "replace")
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
        problem = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read: {problem}") from error


@dataclass(slots=True)
class DagNode:
    """One node. ``name`` is that of its submit file, or of a sub-DAG's DAG; ``description`` stands
    in its place where the DAG has the submit description itself; ``folder`` is where it is
    submitted. ``variables`` are what ``VARS`` says before the submit description is read, which may
    assign them anew, ``overriding`` afterwards. It is tried again ``retries`` times, but not after
    the exit code ``unless_exit``. ``is_service``: it runs beside the others until
    DAGMan removes it. A workflow may have 100,000: paths are made when they are asked for."""

    name: str
    folder: Path
    is_subdag: bool = False
    is_service: bool = False
    is_final: bool = False
    is_noop: bool = False
    is_done: bool = False
    description: str | None = None
    variables: Mapping[str, str] = field(default_factory=lambda: _NO_VARIABLES)
    overriding: Mapping[str, str] = field(default_factory=lambda: _NO_VARIABLES)
    parents: tuple[str, ...] = ()
    retries: int = 0
    unless_exit: int | None = None
    priority: int = 0
    has_post: bool = False

    @property
    def file(self) -> Path:
        """The submit file, or the DAG of a sub-DAG."""
        return self.folder / self.name


@dataclass(slots=True)
class _Scope:
    """A DAG or a splice, with the files that it includes."""

    nodes: dict[str, DagNode] = field(default_factory=dict)
    splices: dict[str, _Scope] = field(default_factory=dict)
    about_nodes: list[tuple[str, list[str], str]] = field(default_factory=list)
    edges: list[tuple[list[str], list[str]]] = field(default_factory=list)
    descriptions: dict[str, str] = field(default_factory=dict)
    pins: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def named(self, name: str) -> list[DagNode]:
        """A node, or all of this file but the final one."""
        if name.upper() == _ALL:
            return [node for node in self.nodes.values() if not node.is_final]
        return [self.nodes[name]] if name in self.nodes else []


def read_nodes(dag: Path, folder: Path, prefix: str = "") -> dict[str, DagNode]:
    """All nodes of a DAG by name, whose DAGMan runs in ``folder``, in the order of the file; of one
    of several, with the ``prefix`` that DAGMan puts before their names.

    Raises InputError where the file cannot be read; parts that cannot be are left out.
    """
    nodes = _scope(dag, folder, ()).nodes
    if not prefix:
        return nodes
    for node in nodes.values():
        node.parents = tuple(_prefixed(parent, prefix) for parent in node.parents)
    return {_prefixed(name, prefix): node for name, node in nodes.items()}


def _prefixed(name: str, prefix: str) -> str:
    return "+".join(prefix + part for part in name.split("+"))  # of splices, too


def variables(text: str) -> dict[str, str]:
    """The assignments of a ``VARS`` line, by lower-case name, ``+x`` as ``my.x``."""
    return {key_of(name): _unquoted(value) for name, value in _VARIABLE.findall(text)}


def key_of(name: str) -> str:
    """An attribute's or a submit command's name, as all spellings of it."""
    lower = name.lower()
    return f"my.{lower[1:]}" if lower.startswith("+") else lower


def _scope(dag: Path, folder: Path, around: tuple[Path, ...]) -> _Scope:
    """``around`` are the files that it is a part of."""
    scope = _Scope()
    _read(scope, dag, folder, around)
    for keyword, words, rest in scope.about_nodes:  # where a node is described does not matter
        _apply(scope, keyword, words, rest)
    for node in scope.nodes.values():
        if node.description is None:  # it may be one that the DAG has for several
            node.description = scope.descriptions.get(node.name)
    firsts, lasts = {}, {}
    for name, splice in scope.splices.items():
        above = {parent for node in splice.nodes.values() for parent in node.parents}
        firsts[name] = [f"{name}+{last}" for last, node in splice.nodes.items() if not node.parents]
        lasts[name] = [f"{name}+{last}" for last in splice.nodes if last not in above]
        for inner, node in splice.nodes.items():
            node.parents = tuple(f"{name}+{parent}" for parent in node.parents)
            scope.nodes[f"{name}+{inner}"] = node
    names = {name: name for name in scope.nodes}  # one string for all mentions of a node
    parents_of: dict[str, list[str]] = {}
    for parents, children in scope.edges:
        ends = [names.get(last, last) for name in parents for last in lasts.get(name, [name])]
        for child in (last for name in children for last in firsts.get(name, [name])):
            if child in scope.nodes:
                parents_of.setdefault(child, list(scope.nodes[child].parents)).extend(ends)
    for child, ends in parents_of.items():
        scope.nodes[child].parents = tuple(ends)
    return scope


def _read(scope: _Scope, dag: Path, folder: Path, around: tuple[Path, ...]) -> None:
    text, inside = text_of(dag), (*around, resolved(dag))
    if inside[-1] in around or len(around) > _DEEPEST:
        return
    rest_of_file = _significant(text)
    for line in _whole(rest_of_file):
        keyword, rest = [*line.split(None, 1), ""][:2]
        keyword = keyword.upper().replace("-", "_")
        if keyword == "WEAK":
            keyword, rest = [*rest.split(None, 1), ""][:2]
        words = _words(rest)
        if keyword.upper() == "PARENT":
            middle = next((n for n, word in enumerate(words) if word.upper() == "CHILD"), None)
            if middle is not None:
                scope.edges.append((words[:middle], words[middle + 1 :]))
        elif keyword in _NODES and len(words) >= 2:
            file = _unquoted(words[1])
            description, options = _description(file, rest_of_file)
            node = _node(file, folder, options if description is not None else words[2:])
            node.description, node.is_final = description, keyword == "FINAL"
            node.is_service = keyword in _SERVICES
            scope.nodes[words[0]] = node
        elif keyword == "SUBDAG" and len(words) >= 3:
            node = _node(_unquoted(words[2]), folder, words[3:])
            node.is_subdag = True
            scope.nodes[words[1]] = node
        elif keyword == "SUBMIT_DESCRIPTION" and len(words) >= 2:
            scope.descriptions[words[0]] = _description(words[1], rest_of_file)[0] or ""
        elif keyword in ("SPLICE", "INCLUDE") and words:
            with suppress(InputError):  # the rest is read all the same
                if keyword == "INCLUDE":
                    _read(scope, folder / _unquoted(words[0]), folder, inside)
                elif len(words) >= 2:
                    part = _node(_unquoted(words[1]), folder, words[2:])
                    scope.splices[words[0]] = _scope(part.file, part.folder, inside)
        elif len(words) >= 2 or (words and keyword == "DONE"):
            scope.about_nodes.append((keyword, words, rest))


def _apply(scope: _Scope, keyword: str, words: list[str], rest: str) -> None:
    """What the DAG says of a node, of all, or of two splices."""
    if keyword == "SCRIPT":
        kinds = [word.upper() for word in words]
        kind = next((n for n, word in enumerate(kinds[:-1]) if word in ("PRE", "POST", "HOLD")), 0)
        for node in scope.named(words[kind + 1]) if kinds[kind] == "POST" else ():
            node.has_post = True
    elif keyword in ("PIN_IN", "PIN_OUT"):
        scope.pins.setdefault((keyword, words[1]), []).append(words[0])
    elif keyword == "CONNECT":
        _connect(scope, *words[:2])
    else:
        for node in scope.named(words[0]):
            _apply_to(node, keyword, words, rest)


def _apply_to(node: DagNode, keyword: str, words: list[str], rest: str) -> None:
    if keyword == "VARS":
        which = "overriding" if _LATER.match(rest) else "variables"
        setattr(node, which, {**getattr(node, which), **variables(rest)})
    elif keyword == "DONE":
        node.is_done = True
    elif keyword in ("RETRY", "PRIORITY") and re.fullmatch(r"-?\d{1,18}", words[1]):
        setattr(node, "retries" if keyword == "RETRY" else "priority", int(words[1]))
        if unless := _UNLESS.search(rest):
            node.unless_exit = int(unless[1])


def _connect(scope: _Scope, first: str, second: str) -> None:
    if first not in scope.splices or second not in scope.splices:
        return
    ins = scope.splices[second].pins
    for (pin, number), names in scope.splices[first].pins.items():
        if pin == "PIN_OUT":
            into = ins.get(("PIN_IN", number), [])
            scope.edges.append(
                ([f"{first}+{name}" for name in names], [f"{second}+{name}" for name in into])
            )


def _significant(text: str) -> Iterator[str]:
    """The lines that are neither empty nor comments."""
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "//")):
            yield stripped


def _whole(lines: Iterator[str]) -> Iterator[str]:
    """Those that end in a backslash with the next."""
    whole = ""
    for line in lines:
        whole = f"{whole} {line}" if whole else line
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        yield whole
        whole = ""


def _words(text: str) -> list[str]:
    """Quotes are kept: in names they are ordinary characters."""
    return _WORD.findall(text) if '"' in text or "'" in text else text.split()


def _unquoted(word: str) -> str:
    if '"' not in word and "'" not in word:
        return word
    return "".join(
        re.sub(r"\\(.)", r"\1", match[0][1:-1]) if match[1] else match[0]
        for match in _PIECE.finditer(word)
    )


def _node(name: str, folder: Path, options: list[str]) -> DagNode:
    """What is submitted in the folder itself, or in the one that the option DIR names."""
    if not options:
        return DagNode(name, folder)
    named = [word.upper() for word in options]
    if "DIR" in named[:-1]:
        at = named.index("DIR")
        folder /= _unquoted(options[at + 1])
        del named[at : at + 2]
    return DagNode(name, folder, is_noop="NOOP" in named, is_done="DONE" in named)


def _description(word: str, lines: Iterator[str]) -> tuple[str | None, list[str]]:
    """The submit description that stands in the DAG itself, where ``word`` opens one, and what is
    behind its end."""
    if not word.startswith(("{", "@=")):
        return None, []
    end = "}" if word.startswith("{") else f"@{word[2:]}"
    body: list[str] = []
    for line in lines:
        if line == end or line.startswith(f"{end} "):
            return "\n".join(body), _words(line)[1:]
        body.append(line)
    return "\n".join(body), []
