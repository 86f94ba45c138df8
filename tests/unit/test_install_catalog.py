"""The hooks as an entry of one transformation catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from generated import shared_fixtures
from hypothesis import given, settings
from hypothesis import strategies as st
from install_world import PYTHON, FakePegasus, make_pegasus

from network_provisioner.base.errors import InputError
from network_provisioner.client.hookconfig import HookConfig
from pegasus_hooks.install.catalog import (
    catalog_part,
    changes_for_catalog,
    entry,
)
from pegasus_hooks.install.edits import carry_out, with_block, without_block
from pegasus_hooks.install.home import InstallTarget, place_for_file
from pegasus_hooks.install.installing import changes_to_undo
from pegasus_hooks.install.parts import SELECTOR, InstallPart
from site_selector.catalogs import properties

PLAIN = """# the group's programs
pegasus: '5.0'
transformations:
# aligners
- namespace: soykb
  name: bwa   # 0.7
  sites:
  - {name: mu, pfn: /bin/bwa, type: installed}
- name: sort
  sites: [{name: mu, pfn: /bin/sort, type: installed}]
x: last"""
INDENTED = "pegasus: '5.0'\ntransformations:\n    - name: é\n      sites: []\n"
INLINE = (
    "pegasus: '5.0'\nname: w\ntransformationCatalog:\n  transformations:\n  - name: a\n"
    "    sites: []\njobs: []\n"
)
CRLF = PLAIN.replace("\n", "\r\n")


@pytest.fixture
def pegasus(tmp_path: Path) -> FakePegasus:
    return make_pegasus(tmp_path / "p")


def catalog(tmp_path: Path, text: str) -> InstallTarget:
    file = tmp_path / "my.yml"
    file.write_bytes(text.encode())
    return place_for_file(file)


def made(place: InstallTarget, pegasus: FakePegasus, broker: str = "http://b:1") -> InstallPart:
    return catalog_part(place, pegasus.home, PYTHON, HookConfig(broker))


def install(place: InstallTarget, pegasus: FakePegasus, broker: str = "http://b:1") -> None:
    wanted = changes_for_catalog(place, pegasus.home, made(place, pegasus, broker))
    carry_out(wanted, place.own)


def undo(place: InstallTarget) -> None:
    carry_out(changes_to_undo(place, keep={SELECTOR}), place.own)


@pytest.mark.parametrize("text", [PLAIN, INDENTED, INLINE, CRLF])
def test_the_entry_comes_first_and_all_else_stays(
    tmp_path: Path, pegasus: FakePegasus, text: str
) -> None:
    place = catalog(tmp_path, text)
    install(place, pegasus)
    content = place.settings.read_bytes().decode()
    before, after = yaml.safe_load(text), yaml.safe_load(content)
    if text is INLINE:
        before, after = before["transformationCatalog"], after["transformationCatalog"]
    ours, *theirs = after["transformations"]
    assert theirs == before["transformations"]
    assert ours == {
        "namespace": "pegasus",
        "name": "transfer",
        "sites": [
            {
                "name": "local", "pfn": f"{pegasus.root}/bin/pegasus-transfer",
                "type": "installed",
            }
        ],
        "profiles": {
            "dagman": {
                "PRE": f"{place.programs}/adon-pre",
                "PRE.ARGUMENTS": "$JOB $RETRY $MAX_RETRIES",
                "POST": "adon",
                "POST.PATH.ADON": f"{place.programs}/adon-exitcode",
                "POST.ARGUMENTS": "$RETRY -r $RETURN",
            },
        },
    }  # fmt: skip
    # Line by line: theirs, with ours between them.
    assert [line for line in text.split("\n") if line not in content.split("\n")] == []
    assert sorted(file.name for file in place.programs.iterdir()) == [
        "adon-exitcode", "adon-hooks.json", "adon-pre"
    ]  # fmt: skip
    undo(place)
    assert place.settings.read_bytes() == text.encode()
    assert not place.programs.exists()


def test_a_second_time_there_is_nothing_to_do(tmp_path: Path, pegasus: FakePegasus) -> None:
    place = catalog(tmp_path, PLAIN)
    install(place, pegasus)
    wanted = changes_for_catalog(place, pegasus.home, made(place, pegasus))
    assert not [change for change in wanted if change.needed]
    install(place, pegasus, "http://other:2")
    assert "http://other:2" in (place.programs / "adon-hooks.json").read_text()
    undo(place)
    assert place.settings.read_text() == PLAIN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pegasus: '5.0'\n", "found no transformations, expected a transformation catalog"),
        ("transformations: []\n", "found no transformations"),
        ("transformations: {a: b}\n", "found no transformations"),
        ("transformations: [{name: a}]\n", "found transformations in brackets"),
        ('{"transformations": [{"name": "a"}]}', "found transformations in brackets"),
        ("? transformations\n: - name: a\n", "before the first entry, expected spaces"),
        ("transformations:\n- name: [\n", "my.yml"),
        ("", "found an empty file"),
    ],
)
def test_what_is_no_plain_catalog_is_one_line(
    tmp_path: Path, pegasus: FakePegasus, text: str, said: str
) -> None:
    place = catalog(tmp_path, text)
    with pytest.raises(InputError, match=r"my\.yml.*expected") as caught:
        install(place, pegasus)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert place.settings.read_text() == text and not place.programs.exists()


def test_no_catalog_and_no_text_are_one_line(tmp_path: Path, pegasus: FakePegasus) -> None:
    with pytest.raises(InputError, match="found no such file"):
        install(place_for_file(tmp_path / "absent.yml"), pegasus)
    (tmp_path / "bytes.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="found no UTF-8"):
        install(place_for_file(tmp_path / "bytes.yml"), pegasus)


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        ("", "pegasus::transfer without PRE"),
        ("  profiles: {dagman: {POST: x}}\n", "pegasus::transfer without PRE"),
        ("  profiles: {dagman: {PRE: /mine}}\n", r"with a PRE of its own \(/mine\)"),
        ("  profiles:\n    dagman:\n      pre: /mine\n", r"with a PRE of its own \(/mine\)"),
    ],
)
def test_an_entry_of_the_users_own_is_kept_and_named(
    tmp_path: Path, pegasus: FakePegasus, profiles: str, said: str
) -> None:
    text = f"{PLAIN.removesuffix('x: last')}- namespace: pegasus\n  name: transfer\n{profiles}"
    place = catalog(tmp_path, text)
    with pytest.raises(InputError, match=said) as caught:
        install(place, pegasus)
    assert "\n" not in str(caught.value)
    assert place.settings.read_text() == text


def test_paths_that_nobody_could_read_are_refused(tmp_path: Path, pegasus: FakePegasus) -> None:
    folder = tmp_path / "é"
    folder.mkdir()
    with pytest.raises(InputError, match="outside ASCII"):
        install(catalog(folder, PLAIN), pegasus)


NAMES = st.text("ab:#-' é\"", min_size=1, max_size=8).map(lambda s: f"x{s}x")


@settings(shared_fixtures, max_examples=20)
@given(
    names=st.lists(NAMES, min_size=1, max_size=4),
    indent=st.integers(0, 5),
    explicit=st.booleans(),
    tail=st.sampled_from(["", "\n", "\n\n# end\n", "\nmore: 1"]),
)
def test_any_list_in_block_style_keeps_its_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    indent: int,
    explicit: bool,
    tail: str,
) -> None:
    root = tmp_path_factory.mktemp("any")
    pegasus = make_pegasus(root / "p")
    entries = yaml.safe_dump([{"name": name, "sites": []} for name in names], allow_unicode=True)
    lines = "".join(f"{' ' * indent}{line}\n" for line in entries.splitlines())
    text = ("---\n" if explicit else "") + "transformations:\n# é\n" + lines.rstrip("\n") + tail
    place = catalog(root, text)
    install(place, pegasus)
    transformations = yaml.safe_load(place.settings.read_text())["transformations"]
    assert [transformation["name"] for transformation in transformations] == ["transfer", *names]
    undo(place)
    assert place.settings.read_bytes() == text.encode()


def test_the_entry_is_what_the_planner_is_shown(tmp_path: Path, pegasus: FakePegasus) -> None:
    place = catalog(tmp_path, PLAIN)
    (shown,) = yaml.safe_load("\n".join(entry(pegasus.home, made(place, pegasus))))
    install(place, pegasus)
    assert yaml.safe_load(place.settings.read_text())["transformations"][0] == shown


LINES = ["# selector", "pegasus.selector.site = a.b.C"]
OTHER = ["other = 1"]
# Files that hold a marker of ours, whole or half, are a case of their own below.
contents = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.lists(
        st.sampled_from([b"a=b", b"\n", b"\r\n", b"c=\\", b"# x", b"\xe9", b"\xef\xbb\xbf", b" "]),
        max_size=12,
    ).map(b"".join),
).filter(lambda content: b"adon" not in (content or b""))


@given(contents)
def test_taken_out_it_was_never_there(content: bytes | None) -> None:
    assert without_block(with_block(content, LINES, "f"), "f") == content


@given(contents)
def test_a_newer_block_replaces_an_older_one(content: bytes | None) -> None:
    upgraded = with_block(with_block(content, OTHER, "f"), LINES, "f")
    assert upgraded == with_block(content, LINES, "f")
    assert without_block(upgraded, "f") == content


@given(contents, st.binary(max_size=20).filter(lambda b: b"# " not in b), st.booleans())
def test_what_the_user_adds_meanwhile_stays(
    content: bytes | None, added: bytes, below: bool
) -> None:
    put = with_block(content, LINES, "f")
    edited = put + added if below else added + b"\n" + put
    expected = (content or b"") + added if below else added + b"\n" + (content or b"")
    left = without_block(edited, "f")
    assert left == expected or (left is None and content is None and expected == b"")


@given(contents)
def test_pegasus_reads_ours_and_the_users_last(content: bytes | None) -> None:
    text = (content or b"").decode("latin-1")
    try:
        theirs = properties.parse(text)
    except ValueError:
        return
    both = properties.parse(with_block(content, LINES, "f").decode("latin-1"))
    assert both == {"pegasus.selector.site": "a.b.C", **theirs}


@pytest.mark.parametrize(
    "content",
    [
        b"# >>> adon: x\na=b\n",
        b"a=b\n# <<< adon <<<\n",
        b"# <<< adon <<<\n# >>> adon: x\n",
        with_block(None, LINES, "f") * 2,
    ],
)
def test_markers_that_make_no_block_are_one_clear_line(content: bytes) -> None:
    with pytest.raises(InputError, match=r"^/x/y: found \d lines '# >>> adon' and \d lines"):
        with_block(content, LINES, "/x/y")
    with pytest.raises(InputError, match="take them out by hand"):
        without_block(content, "/x/y")
