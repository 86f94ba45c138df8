"""Transfer lists: what we write pegasus-transfer reads, and what it reads we read."""

from __future__ import annotations

import io
import json

import pytest
from hooks_world import move
from hypothesis import example, given, settings
from hypothesis import strategies as st
from Pegasus import transfer as pegasus_transfer

from monitors.workflows.planned import transferlist
from monitors.workflows.planned.transferlist import Entry, Mkdir, Remove, SiteUrl, Transfer
from network_provisioner.base.errors import InputError

words = st.text("abcXYZ019._-", min_size=1, max_size=8)
urls = st.builds(
    SiteUrl,
    words,
    words.map(lambda w: f"gsiftp://host:2811/scratch/{w}"),
    st.none() | st.integers(1, 100),
)
transfers = st.builds(
    Transfer,
    words,
    st.lists(urls, min_size=1, max_size=3).map(tuple),
    st.lists(urls, min_size=1, max_size=2).map(tuple),
    st.none() | st.integers(0, 10**15),
    st.sampled_from(["input", "output"]),
    st.booleans(),
    st.booleans(),
)
entries: st.SearchStrategy[Entry] = st.one_of(
    transfers, st.builds(Mkdir, urls), st.builds(Remove, urls, st.booleans())
)

PLANNED = """[
 { "type": "transfer", "linkage": "input", "lfn": "reads.fq", "id": 1,
   "generate_checksum": true, "attributes": { "size":"8000" },
   "src_urls": [ { "site_label": "far", "url": "gsiftp://far/r.fq", "priority": 90 },
                 { "site_label": "near", "url": "gsiftp://near/r.fq", "priority": 100 } ],
   "dest_urls": [ { "site_label": "mu", "url": "gsiftp://mu/run/r.fq" } ] }
 ,
 { "type": "transfer", "linkage": "output", "lfn": "made.bam", "id": 2,
   "src_urls": [ { "site_label": "mu", "url": "gsiftp://mu/run/made.bam" } ],
   "dest_urls": [ { "site_label": "mu", "url": "gsiftp://mu/store/made.bam" } ] }
]"""


def test_a_list_as_the_planner_writes_it() -> None:
    first, second = transferlist.parse(PLANNED, "x.in")
    assert isinstance(first, Transfer) and isinstance(second, Transfer)
    assert (first.lfn, first.size_bytes, second.size_bytes) == ("reads.fq", 8000, None)
    assert first.source.site == "near"
    # The checksum is computed where pegasus-transfer runs.
    pairs = [(p.src, p.dst) for p in transferlist.site_pairs([first, second])]
    assert pairs == [("near", "local"), ("local", "mu")]


@pytest.mark.parametrize(
    ("schemes", "checksum", "legs"),
    [
        (("gsiftp", "gsiftp"), False, [("a", "b")]),
        (("gsiftp", "gsiftp"), True, [("a", "local"), ("local", "b")]),
        (("https", "gsiftp"), False, [("a", "local"), ("local", "b")]),
        (("s3", "s3s"), True, [("a", "b")]),
        (("file", "gsiftp"), True, [("a", "b")]),
        (("https", "file"), True, [("a", "b")]),
    ],
)
def test_bytes_take_the_way_that_pegasus_transfer_takes(
    schemes: tuple[str, str], checksum: bool, legs: list[tuple[str, str]]
) -> None:
    src, dst = ((SiteUrl(site, f"{s}://h/x"),) for s, site in zip(schemes, ("a", "b"), strict=True))
    assert list(Transfer("x", src, dst, checksum=checksum).legs()) == legs


def test_a_file_that_is_verified_comes_back() -> None:
    src, dst = (SiteUrl("a", "gsiftp://a/x"),), (SiteUrl("b", "gsiftp://b/x"),)
    assert Transfer("x", src, dst, verify=True).legs() == (("a", "b"), ("b", "local"))


def test_pegasus_transfers_own_tools_move_what_we_take_for_direct() -> None:
    base = pegasus_transfer.TransferHandlerBase
    known = [c for c in vars(pegasus_transfer).values() if isinstance(c, type)]
    pairs = [p.split("->") for c in known if issubclass(c, base) for p in c._protocol_map]
    local = {"file", "symlink", "moveto"}
    ends = {(a, b) for a, b in pairs if local.isdisjoint((a, b.partition("::")[0]))}
    schemes = {scheme for pair in pairs for scheme in pair if "::" not in scheme} - local

    def legs(src: str, dst: str) -> int:
        sources, destinations = (SiteUrl("a", f"{src}://h/x"),), (SiteUrl("b", f"{dst}://h/x"),)
        return len(Transfer("x", sources, destinations).legs())

    assert {(a, b) for a in schemes for b in schemes if legs(a, b) == 1} == ends


def test_a_relay_at_an_end_is_one_leg() -> None:
    src, dst = (SiteUrl("a", "gsiftp://a/x"),), (SiteUrl("local", "gsiftp://l/x"),)
    assert Transfer("x", src, dst, checksum=True).legs() == (("a", "local"),)


@settings(max_examples=25)
@given(st.lists(entries, max_size=6))
def test_writing_and_reading_gives_the_same_list(wanted: list[Entry]) -> None:
    assert transferlist.parse(transferlist.dumps(wanted), "x.in") == wanted


@settings(max_examples=25)
@given(st.lists(entries, max_size=6))
def test_pegasus_transfer_reads_what_we_write(wanted: list[Entry]) -> None:
    pegasus_entries: list[object] = []
    pegasus_transfer.read_json_format(transferlist.dumps(wanted), pegasus_entries)
    kinds = {"Transfer": Transfer, "Mkdir": Mkdir, "Remove": Remove}
    assert [kinds[type(f).__name__] for f in pegasus_entries] == [type(w) for w in wanted]
    for ours, theirs in zip(wanted, pegasus_entries, strict=True):
        if isinstance(ours, Remove):
            assert theirs.get_recursive() is ours.recursive  # type: ignore[attr-defined]
        elif isinstance(ours, Transfer) and all(u.priority for u in ours.sources):
            assert theirs.src_url() == ours.source.url  # type: ignore[attr-defined]


@settings(max_examples=25)
@given(st.lists(transfers, max_size=8))
def test_pairs_cover_every_transfer_between_sites_once(wanted: list[Transfer]) -> None:
    pairs = transferlist.site_pairs(wanted)
    across = [leg for t in wanted for leg in set(t.legs())]
    assert sum(len(p.transfers) for p in pairs) == len(across)
    assert all(t.legs() for t in wanted if t.source.site != t.destination.site)
    assert len({(p.src, p.dst) for p in pairs}) == len(pairs)
    assert all(p.src != p.dst for p in pairs)


def test_the_size_of_a_pair_is_known_only_when_every_file_is() -> None:
    (pair,) = transferlist.site_pairs([move("a", "x", "y", 5), move("b", "x", "y")])
    assert pair.size_bytes({}) is None
    assert pair.size_bytes({"b": 7}) == 12
    assert pair.size_bytes({"a": 1, "b": 7}) == 12  # what is declared counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected a JSON transfer list"),
        ("{}", "found dict, expected a JSON list"),
        ("[3]", "entry 1: found int"),
        ('[{"type": "copy"}]', "found type 'copy'"),
        ('[{"type": "transfer"}]', "found no src_urls"),
        ('[{"type": "mkdir", "target": {}}]', "expected site_label and url"),
    ],
)
def test_a_bad_list_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(InputError, match=r"^x\.in: ") as caught:
        transferlist.parse(text, "x.in")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("size", ["-5", "1e3", "big", 2.5, True, [], "9" * 5000])
def test_a_size_that_is_no_number_is_refused(size: object) -> None:
    item = move("a", "x", "y").as_json(1) | {"attributes": {"size": size}}
    with pytest.raises(InputError, match="expected a number of bytes"):
        transferlist.parse(json.dumps([item]), "x.in")


@pytest.mark.parametrize("priority", ["--5", "1.5", "9" * 5000, []])
def test_a_priority_that_is_no_number_is_refused(priority: object) -> None:
    item = move("a", "x", "y").as_json(1)
    item["src_urls"][0]["priority"] = priority
    with pytest.raises(InputError, match="expected a whole number"):
        transferlist.parse(json.dumps([item]), "x.in")


@settings(max_examples=25)
@example("[" * 9999)
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_nothing_but_input_errors(text: str) -> None:
    try:
        transferlist.parse(text, "x.in")
    except InputError as error:
        assert io.StringIO(str(error)).readline().startswith("x.in")
