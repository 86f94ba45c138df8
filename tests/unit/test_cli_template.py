"""``adon template``: what people see of the catalogue, over a real connection."""

from __future__ import annotations

import json
import re
from pathlib import Path

from broker_rig import Rig
from cli_world import adon, refusal

FIGURES = (
    "qspec: {min_throughput: 50 Mb/s}\nrspec: {max_throughput: 150 Mb/s}\napplications: [own*]\n"
)


def written(tmp_path: Path, text: str = FIGURES) -> Path:
    file = tmp_path / "own.yml"
    file.write_text(text, encoding="utf-8")
    return file


def lines(*words: object) -> list[str]:
    ran = adon(*words)
    assert (ran.code, ran.err) == (0, ""), ran
    return ran.out.splitlines()


def test_all_templates_in_a_table(service: Rig) -> None:
    head, *rows = lines("template", "list")
    assert head.split() == [
        "template", "version", "origin", "needs", "may", "have", "priority", "peak", "for",
    ]  # fmt: skip
    assert [row.split()[0] for row in rows] == ["default", "montage", "soykb"]
    assert re.split(" {2,}", rows[2]) == [
        "soykb", "1", "adon.yml", "25 Mb/s", "150 Mb/s", "5", "-", "soykb, soykb[-_:.]*",
    ]  # fmt: skip
    assert [t["name"] for t in json.loads(adon("template", "list", "--json").out)] == [
        "default", "montage", "soykb",
    ]  # fmt: skip


def test_one_template_in_full(service: Rig) -> None:
    shown = lines("template", "show", "montage")
    assert shown[0] == "template              montage, version 1, adon.yml"
    assert "may have              2 Gb/s" in shown
    assert (
        "scores of throughput  100 Mb/s 1, 300 Mb/s 4, 500 Mb/s 6, 900 Mb/s 8, 2 Gb/s 10" in shown
    )
    assert refusal("template", "show", "nope") == (
        "unknown template 'nope', expected one of default, montage, soykb"
    )
    assert "has no version 9" in refusal("template", "show", "soykb", "--revision", "9")


def test_saved_from_a_file_restored_and_deleted(service: Rig, tmp_path: Path) -> None:
    shown = lines("template", "save", "own", "--file", written(tmp_path))
    assert shown[0].split(maxsplit=1)[1] == "own, version 1, saved"
    text = FIGURES.replace("50 Mb/s}", "60 Mb/s}", 1)
    lines("template", "save", "own", "--file", written(tmp_path, text))
    lines("template", "save", "own", "--revision", "1")
    head, *rows = lines("template", "history", "own")
    assert head.split() == ["version", "at", "origin", "made", "of", "needs", "may", "have"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert rows[2].endswith("version 1  50 Mb/s  150 Mb/s")
    assert lines("template", "delete", "own") == ["template own is deleted; its history stays"]
    assert lines("template", "history", "own")[-1].split()[3:] == ["deleted", *"---"]
    assert "is built in" in refusal("template", "delete", "default")


def test_a_replaced_built_in_template_stands_there_again(service: Rig, tmp_path: Path) -> None:
    lines("template", "save", "soykb", "--file", written(tmp_path))
    said = lines("template", "delete", "soykb")
    assert said[0] == "the template of adon.yml applies again"
    assert said[2].split()[:4] == ["soykb", "4", "adon.yml", "25"]


def test_saved_from_a_transfer_that_succeeded(service: Rig) -> None:
    command = ("transit", "request", "mu", "tacc", "--id", "run", "--application", "blast")
    lines(*command, "--min", "40 Mb/s")
    message = refusal("template", "save", "blast", "--transit", "run")
    assert message.startswith("transit 'run' is installed, expected one that had a path")
    lines(
        "transit", "release", "run", "--moved", "100 MB", "--took", "10 s", "--outcome", "success"
    )
    output = "\n".join(lines("template", "save", "blast", "--transit", "run"))
    assert "made of          transit run (default 1)" in output
    assert "for              blast" in output
    assert "needs at least   40 Mb/s" in output
    assert "peak             80 Mb/s (run, 4 streams" in output
    assert "unknown transit 'nope'" in refusal("template", "save", "x", "--transit", "nope")


def test_the_one_that_fits(service: Rig) -> None:
    said = lines("template", "match", "soykb::bwa_mem:1.0")
    assert said[1].startswith("soykb ") and "'soykb' is for 'soykb[-_:.]*'" in said[2]
    said = lines("template", "match", "--min", "300 Mb/s")
    assert said[1].startswith("montage ")
    assert "skipped: soykb allows 150 Mb/s, 300 Mb/s needed" in said
    ran = adon("template", "match", "unheard-of")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out == "no template is for 'unheard-of', and nothing was asked for\n"
    assert json.loads(adon("template", "match", "montage", "--json").out)["how"] == "name"


def test_what_it_would_have_chosen(service: Rig, tmp_path: Path) -> None:
    lines("transit", "request", "mu", "tacc", "--id", "run", "--template", "soykb")
    shown = lines("template", "try", "soykb")
    assert shown[-1] == "0 of 1 would take another path"
    other = written(tmp_path, "qspec: {min_throughput: 90 Gb/s}\n")
    shown = lines("template", "try", "soykb", "--file", other, "--of", "soykb")
    assert shown[1].split()[-2:] == ["-", "yes"]
    assert shown[2] == "1 of 1 would take another path"
    assert shown[3].startswith("run: ") and "90 Gb/s needed" in shown[3]
    assert lines("template", "try", "soykb", "--of", "none")[-1].startswith("0 of 0")


REFUSED = [
    (("match", "--min", "fast"), "min_throughput: found 'fast', expected a number with a unit"),
    (("match", "--max-loss", "2"), "max_loss: found 2.0, expected less than 1"),
    (("match", "--min", "2 Gb/s", "--max", "1 Gb/s"), "is above max_throughput"),
    (("save", "a b", "--file", "own.yml"), "expected letters, digits and . _ -"),
    (("save", "x", "--file", "none.yml"), "none.yml: found no such file"),
    (("save", "x", "--file", "bad.yml"), "bad.yml: template 'bad' has no 'qspec'"),
    (("save", "x"), "one of the arguments --transit --file --revision is required"),
    (("save", "x", "--revision", "1"), "unknown template 'x'"),
    (("history", "x"), "unknown template 'x'"),
    (("delete", "x"), "unknown template 'x'"),
    (("show", "soykb", "--revision", "0"), "expected a whole number from 1"),
]


def test_what_cannot_be_is_one_line(service: Rig, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "bad.yml").write_text("rspec: {max_throughput: 1}\n", encoding="utf-8")
    for words, said in REFUSED:
        assert said in refusal("template", *words)
