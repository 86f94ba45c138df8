"""HTCondor's transfer plug-in for irods://, without a zone: what it is handed and tells, how many
streams it takes, and its sentences."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from irods.exception import CAT_NO_ACCESS_PERMISSION, NetworkException

from condor_plugins.irods import icommands, messages, plugin
from condor_plugins.irods.account import IrodsUrl
from condor_plugins.irods.results import CHUNK, MOST, USUAL, streams, text, wanted_files

LARGE = 1000 * CHUNK
WINDOW = 3 * 2**20
TEXTS = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")))


def test_what_it_can_do_is_told_without_the_client() -> None:
    words = [sys.executable, "-I", "-S", plugin.__file__, "-classad"]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert 'SupportedMethods = "irods"' in output.splitlines()
    assert "MultipleFileSupport = true" in output.splitlines()


def test_arguments_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["-infile", "a"]) == 1
    assert "expected -infile FILE -outfile FILE [-upload]" in capsys.readouterr().err


def test_a_machine_without_the_client_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "condor_plugins.irods.files", None)
    (tmp_path / "in").write_bytes(b'[ Url = "irods:///z/a\xe9"; LocalFileName = "a\xe9" ]')
    assert plugin.main(["-infile", str(tmp_path / "in"), "-outfile", str(tmp_path / "out")]) == 1
    assert b"expected python-irodsclient for" in (tmp_path / "out").read_bytes()


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_ads_are_read_as_htcondor_writes_them(files: list[tuple[str, str]]) -> None:
    ads = (classad2.ClassAd({"Url": url, "LocalFileName": name}) for url, name in files)
    assert wanted_files("\n".join(map(repr, ads))) == files


@given(TEXTS, st.integers(0, 2**60), st.floats(0, 1e6))
def test_results_are_ads(name: str, size: int, seconds: float) -> None:
    result = {"TransferFileName": name, "TransferFileBytes": size, "TransferSuccess": True,
              "ConnectionTimeSeconds": seconds, "DeveloperData": {"TransferTries": 1}}  # fmt: skip
    ad = classad2.ClassAd(text(result))
    assert {key: ad[key] for key in result if key != "DeveloperData"} | {
        "DeveloperData": dict(ad["DeveloperData"])
    } == result


@pytest.mark.parametrize(
    ("ad", "size", "count"),
    [
        ({}, LARGE, 3),
        ({}, 2 * CHUNK, 2),
        ({}, 0, 1),
        ({"AdonStreams": 5}, LARGE, 5),
        ({"AdonStreams": 5, "AdonRateBps": 1e12, "AdonRttSeconds": 1.0}, LARGE, 5),
        ({"AdonStreams": 99}, LARGE, MOST),
        ({"AdonStreams": "many"}, LARGE, 3),
        ({"AdonRateBps": 1e9}, LARGE, 3),
        ({"AdonRateBps": 1e9, "AdonRttSeconds": 0.0001}, LARGE, USUAL),
        ({"AdonRateBps": 1e9, "AdonRttSeconds": 0.05}, LARGE, 6),  # 6.25 MB under way
        ({"AdonRateBps": 1e10, "AdonRttSeconds": 0.1}, LARGE, MOST),
    ],
)
def test_streams(ad: dict[str, str | int | float], size: int, count: int) -> None:
    assert streams(ad, size, WINDOW) == count


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CAT_NO_ACCESS_PERMISSION(), "ann has no permission there"),
        (NetworkException("away"), "data.example:1247 cannot be reached, or broke off (away)"),
        (OSError(errno.ENOSPC, "x"), "the disk of the execute machine is full"),
        (OSError(errno.EDQUOT, "x"), "the disk quota on the execute machine is used up"),
        (FileNotFoundError(errno.ENOENT, "No such file", "out.bam"),
         "[Errno 2] No such file: 'out.bam'"),
        (KeyError(-5000), "the server answers with the unknown code -5000"),
        (RuntimeError("odd"), "RuntimeError: odd"),
    ],
)  # fmt: skip
def test_sentences(error: Exception, reason: str) -> None:
    settings = {"irods_host": "data.example", "irods_port": 1247, "irods_user_name": "ann"}
    assert messages.sentence(error, IrodsUrl("/z/a"), settings) == f"/z/a: {reason}"


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (["iget", "-h"], 0, "Version 4.3", ""),
        (["iget", "-N", "4", "only-one"], 1, "", "expected 2 paths and no ticket"),
        (["iput", "-t", "ticket", "a", "b"], 1, "", "expected 2 paths and no ticket"),
        (["iget", "-N", "four", "a", "b"], 1, "", "invalid literal"),
        (["irsync", "a", "b"], 1, "", "irsync"),
    ],
)
def test_icommands_answer_without_a_zone(
    words: list[str], code: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert icommands.main(words) == code
    said = capsys.readouterr()
    assert out in said.out and err in said.err
