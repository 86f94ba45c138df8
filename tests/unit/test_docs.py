"""The pages: every link and path leads somewhere, and every ``adon`` command is one."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from cli_world import adon

from adon.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for folder in (".", "docs", "docs/decisions", "examples", "examples/*")
    for path in ROOT.glob(f"{folder}/*.md")
    if path.name != "CHANGELOG.md"  # which speaks of what was
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$|^((?:    .*\n)+)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ |sudo )?adon (.*)")
LEFT_OUT = re.compile(r"…|\.\.\.|\|| \[")  # what a page leaves to its reader
# Folders of the checkout: a path that begins with one is a path of ours.
OURS = "adon|condor_plugins|docs|examples|monitors|network_provisioner|pegasus_hooks|site_selector"
PATH = re.compile(rf"`((?:{OURS}|tests)/[\w./-]*)`|(?<![\w/])(examples/[\w/]+\.py)\b")
MODULE = re.compile(rf"python -m ((?:{OURS}|tests)[\w.]*)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def anchors(page: Path) -> set[str]:
    """What a ``#`` may name, as GitHub makes it of headings."""
    names = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", text_of(page)), re.M):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        names.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return names


def blocks(page: Path) -> list[str]:
    """What stands in a page as it is typed or printed."""
    return [fenced or indented for _, fenced, indented in FENCE.findall(text_of(page))]


def typed(page: Path) -> Iterator[str]:
    """The ``adon`` commands of a page's blocks, without the word."""
    for block in blocks(page):
        for line in block.replace("\\\n", " ").splitlines():
            if match := COMMAND.match(line.strip()):
                yield match[1].removesuffix(" &")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_path_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        name, _, anchor = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(there), f"{page}: {target}"
    for quoted, script in PATH.findall(text_of(page)):
        assert (ROOT / (quoted or script)).exists(), f"{page}: {quoted or script}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_one(page: Path) -> None:
    parser = build_parser()
    for words in typed(page):
        if not LEFT_OUT.search(words):
            arguments = shlex.split(words, comments=True)
            assert parser.parse_args(arguments), words
    for words in (*typed(page), *re.findall(r"`adon ([^`]+)`", text_of(page))):
        check_known(parser, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_target_and_module_is_one(page: Path) -> None:
    targets = re.findall(r"(?m)^([a-z0-9-]+):", text_of(ROOT / "Makefile"))
    for target in re.findall(r"(?m)(?:`|^ *|sudo )make ([a-z][a-z0-9-]*)", text_of(page)):
        assert target in targets, f"{page}: make {target}"
    for module in MODULE.findall(text_of(page)):
        place = ROOT / module.replace(".", "/")
        assert (place / "__main__.py").exists() or place.with_suffix(".py").exists(), module


def check_known(parser: argparse.ArgumentParser, words: str) -> None:
    """The command and its options exist, whatever a page leaves out between them."""
    options = set(parser._option_string_actions)
    for word in re.sub(r"[#…].*", "", words).split():
        nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        name = word.strip("[],")
        if nested and re.fullmatch(r"[a-z-]+", name) and not name.startswith("-"):
            if name == "help":
                return
            assert name in nested[0].choices, f"adon {words}"
            parser = nested[0].choices[name]
            options |= set(parser._option_string_actions)
        elif name.startswith("--") and name != "--":
            assert name in options, f"adon {words}"


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A command, or all those below it."""
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    yield from (leaf for a in nested for command in a.choices.values() for leaf in leaves(command))
    if not nested:
        yield parser


def test_every_example_of_the_help_is_a_command() -> None:
    parser = build_parser()
    examples = [
        words.partition(" > ")[0]
        for leaf in leaves(parser)
        for words in re.findall(r"(?m)^  adon (.*)$", (leaf.epilog or "").replace("\\\n", " "))
    ]
    assert len(examples) > 100
    for words in examples:
        # What an example does stands behind it, apart.
        assert parser.parse_args(shlex.split(re.split(r" {3,}(?![ -])", words)[0], comments=True))


def test_the_list_of_commands_is_whole() -> None:
    listed = text_of(ROOT / "docs/cli.md")
    nouns = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for noun, parser in nouns.choices.items():
        assert f"`adon {noun}" in listed, noun
        verbs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        for verb in verbs[0].choices if verbs else ():
            assert re.search(rf"`adon {noun}[^:\n]*\b{verb}\b", listed), f"{noun} {verb}"
    assert adon("--help").code == 0
