"""The hooks for one transformation catalog: an entry ``pegasus::transfer`` with PRE and POST.

It is for one catalog what the properties are for an installation or a user: who plans with that
catalog has the hooks, nobody else. The entry is in the user's YAML in a block of its own, and
the scripts in a folder beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from network_provisioner.base.errors import InputError
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks.install.edits import FileEdit, find_block, heading, read, with_block
from pegasus_hooks.install.home import InstallTarget, PegasusHome
from pegasus_hooks.install.parts import HOOKS, InstallPart, hook_files, program_edit
from pegasus_hooks.prepost import hookscripts
from pegasus_hooks.prepost.hookscripts import Commands, safe_path
from site_selector.catalogs.documents import parse_document

_LIST, _INLINE = "transformations", "transformationCatalog"
_WHAT = "transformation catalog"
_OUR_POST = "ADON"  # Pegasus's name of a POST that is not one of its own


def catalog_part(
    place: InstallTarget, home: PegasusHome, python: str, config: HookConfig
) -> InstallPart:
    """PRE and POST of transfer jobs. Raises InputError for paths that DAGMan would split."""
    folder = place.programs
    exitcode = home.root / "bin" / "pegasus-exitcode"
    commands = Commands(python, str(folder / hookscripts.CONFIG_NAME), str(exitcode))
    pre, post = folder / hookscripts.PRE_NAME, folder / hookscripts.POST_NAME
    script = hookscripts.catalog_exitcode_script(commands)
    return InstallPart(
        HOOKS,
        "a path before each transfer planned with this catalog, and its return",
        {},
        programs=hook_files(commands, script, config),
        scripts=(safe_path(str(pre), "PRE script"), safe_path(str(post), "POST script")),
    )


def entry(home: PegasusHome, part: InstallPart, indent: str = "") -> list[str]:
    """The catalog's entry, line by line; its dash is behind ``indent``."""
    pre, post = part.scripts or ("", "")
    transfer = home.root / "bin" / "pegasus-transfer"
    lines = [
        "- namespace: pegasus",
        "  name: transfer",
        "  sites:",
        f"  - {{name: local, pfn: {_quoted(str(transfer))}, type: installed}}",
        "  profiles:",
        "    dagman:",
        f"      PRE: {_quoted(pre)}",
        f"      PRE.ARGUMENTS: {_quoted(hookscripts.PRE_ARGUMENTS)}",
        f"      POST: {_OUR_POST.lower()}",
        f"      POST.PATH.{_OUR_POST}: {_quoted(post)}",
        f"      POST.ARGUMENTS: {_quoted(hookscripts.POST_ARGUMENTS)}",
    ]
    return [indent + line for line in lines]


def changes_for_catalog(
    place: InstallTarget, home: PegasusHome, part: InstallPart
) -> list[FileEdit]:
    """Programs first, then the entry.

    Raises InputError for what is no catalog in block style, and for one that has an entry
    ``pegasus::transfer`` of its own: two of them would be one too many for the planner.
    """
    file = place.settings
    content = read(file)
    if content is None:
        raise InputError(f"{file}: found no such file, expected a {_WHAT}")
    rest = find_block(content, str(file)).rest
    entries, at, indent = _list_in(rest, str(file))
    _refuse_own_entry(entries, str(file), part)
    lines = [heading(part.name, part.what), *entry(home, part, indent)]
    after = with_block(content, lines, str(file), at=at)
    _check(after, entries, str(file))
    scripts = [program_edit(place.programs / name, new) for name, new in part.programs.items()]
    return [*scripts, FileEdit(file, content, after)]


def _list_in(content: bytes, name: str) -> tuple[Sequence[Any], int, str]:
    """The entries, the byte before the first of them, and what is before its dash."""
    text = _text(content, name)
    root: Mapping[str, Any] = parse_document(text, name, _WHAT).root
    inline = _LIST not in root and isinstance(root.get(_INLINE), dict)
    entries = (root[_INLINE] if inline else root).get(_LIST)
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{name}: found no {_LIST}, expected a {_WHAT}")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in (_INLINE, _LIST) if inline else (_LIST,):
        node = _value(node, key)
    if not isinstance(node, yaml.SequenceNode) or node.flow_style:
        raise InputError(
            f"{name}: found {_LIST} in brackets, expected one entry below the other, each behind a "
            "dash"
        )
    start = node.start_mark.index
    line = text.rfind("\n", 0, start) + 1
    indent = text[line:start]
    if indent.strip(" "):
        raise InputError(f"{name}: found {indent!r} before the first entry, expected spaces")
    return entries, len(text[:line].encode()), indent


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _refuse_own_entry(entries: Sequence[Any], name: str, part: InstallPart) -> None:
    for listed in entries:
        if not isinstance(listed, dict):
            continue
        if (listed.get("namespace"), listed.get("name")) != ("pegasus", "transfer"):
            continue
        profiles = listed.get("profiles")
        dagman = profiles.get("dagman") if isinstance(profiles, dict) else None
        settings = (
            {str(k).upper(): v for k, v in dagman.items()} if isinstance(dagman, dict) else {}
        )
        if "PRE" in settings:
            raise InputError(
                f"{name}: found pegasus::transfer with a PRE of its own ({settings['PRE']}), which "
                "is kept; expected none"
            )
        pre = (part.scripts or ("",))[0]
        raise InputError(
            f"{name}: found pegasus::transfer without PRE, which is kept; expected no such entry: "
            f"add 'profiles: {{dagman: {{PRE: {pre}, PRE.ARGUMENTS: "
            f'"{hookscripts.PRE_ARGUMENTS}"}}}}\' to it by hand, or use --me'
        )


def _check(after: bytes, entries: Sequence[Any], name: str) -> None:
    """That nothing but our entry is new to who reads the file."""
    listed, _, _ = _list_in(after, name)
    if list(listed[1:]) != list(entries):
        raise InputError(f"{name}: found a list that our entry would change, expected plain YAML")


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{name}: found no UTF-8, expected a {_WHAT}") from None


def _quoted(value: str) -> str:
    """As YAML has it in double quotes, where it is ASCII."""
    if not value.isascii():
        raise InputError(f"{value!r}: found characters outside ASCII, expected a plain path")
    return json.dumps(value)
