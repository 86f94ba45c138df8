"""check.py measures what it says, on files it can trust and files it cannot."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import soykb_rig
from hypothesis import given
from hypothesis import strategies as st

check = soykb_rig.load("check")

HEAD = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tA\tB\n"


def row(pos: int, alt: str = "C", passed: str = "PASS", ref: str = "A", calls: str = "") -> str:
    calls = calls or "0/1:9\t0/0:9"
    return f"Chr01\t{pos}\t.\t{ref}\t{alt}\t50\t{passed}\t.\tGT:GQ\t{calls}\n"


def vcf(path: Path, *rows: str) -> Path:
    text = HEAD + "".join(rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_reads_passed_snps_only(tmp_path: Path) -> None:
    calls = vcf(
        tmp_path / "a.vcf.gz",
        row(1),
        row(2, passed="."),
        row(3, passed="my_snp_filter"),
        row(4, ref="AC", alt="A"),
        row(5, alt="AT"),
        row(6, alt="C,T", calls="1|2\t./."),
        row(7, alt="*"),
    )
    assert check.snps(calls) == {
        ("Chr01", 1, "A", "C"): {"A": 1, "B": 0},
        ("Chr01", 2, "A", "C"): {"A": 1, "B": 0},
        ("Chr01", 6, "A", "C"): {"A": 1, "B": None},
        ("Chr01", 6, "A", "T"): {"A": 1, "B": None},
    }


def snp(position: int) -> tuple[str, int, str, str]:
    return ("Chr01", position, "A", "C")


@given(st.sets(st.integers(1, 60), min_size=1), st.sets(st.integers(1, 60)))
def test_recall_and_precision_are_shares_of_the_same_hits(
    planted: set[int], called: set[int]
) -> None:
    figures = check.compare({snp(p): {"A": 1} for p in planted}, {snp(p): {"A": 1} for p in called})
    hits = len(planted & called)
    assert figures["found_snps"] == hits
    assert figures["recall"] * len(planted) == pytest.approx(hits)
    assert figures["precision"] * len(called) == pytest.approx(hits)
    assert figures["genotype_concordance"] == (1.0 if hits else 0.0)


def test_another_base_at_the_same_place_is_no_hit() -> None:
    figures = check.compare({snp(1): {"A": 1}}, {("Chr01", 1, "A", "G"): {"A": 1}})
    assert (figures["recall"], figures["precision"]) == (0.0, 0.0)


def test_concordance_counts_each_sample() -> None:
    truth = {snp(1): {"A": 1, "B": 2}}
    figures = check.compare(truth, {snp(1): {"A": 1, "B": None}})
    assert figures["genotype_concordance"] == 0.5


@pytest.mark.parametrize(
    ("missed", "wrong", "status"), [(0, 0, 0), (1, 3, 0), (2, 0, 1), (0, 4, 1), (100, 0, 1)]
)
def test_the_exit_status_says_whether_the_thresholds_held(
    tmp_path: Path, missed: int, wrong: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = vcf(tmp_path / "truth.vcf", *(row(p) for p in range(1, 101)))
    rows = [row(p) for p in range(1, 101 - missed)] + [row(p) for p in range(500, 500 + wrong)]
    calls = vcf(tmp_path / "calls.vcf.gz", *rows)
    assert check.main(["--truth", str(truth), "--calls", str(calls)]) == status
    figures = json.loads(capsys.readouterr().out)
    assert figures["planted_snps"] == 100
    assert figures["recall"] == pytest.approx(1 - missed / 100)


BAD = {
    "missing": None,
    "empty": b"",
    "no header": row(1).encode(),
    "short record": (HEAD + "Chr01\t1\t.\n").encode(),
    "bad position": HEAD.encode() + row(1).replace("\t1\t", "\tx\t", 1).encode(),
    "cut gzip": gzip.compress((HEAD + row(1) * 99).encode())[:-12],
    "damaged gzip": b"\x1f\x8b" + b"x" * 40,
    "no text": b"\xff\xfe\x00" * 9,
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_read_is_one_line_and_status_2(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = vcf(tmp_path / "truth.vcf", row(1))
    calls = tmp_path / "calls.vcf.gz"
    content = BAD[kind]
    if content is not None:
        calls.write_bytes(content)
    assert check.main(["--truth", str(truth), "--calls", str(calls)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("check.py: ") and printed.err.count("\n") == 1
    assert str(calls) in printed.err


def test_a_truth_without_snps_is_refused(tmp_path: Path) -> None:
    empty = vcf(tmp_path / "t.vcf")
    assert check.main(["--truth", str(empty), "--calls", str(empty)]) == 2
