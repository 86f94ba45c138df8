"""ADON's block in somebody else's file goes in and comes out without a trace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base.errors import InputError
from pegasus_hooks.install.edits import with_block, without_block
from site_selector.catalogs import properties

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
