"""What pegasus-kickstart writes: times, exit code and sizes, from whatever stands around them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.workflows.logs import kickstart

DOCUMENT = """\
- invocation: True
  version: 3.0
  start: 2026-11-21T09:49:17.718+00:00
  duration: 0.199
  hostname: mu.adon.test
  mainjob:
    start: 2026-11-21T09:49:17.726+00:00
    duration: 0.190
    status:
      raw: 0
      regular_exitcode: 0
    executable:
      file_name: /tools/bwa_index
      size: 189
  cleanup:
    status:
      regular_exitcode: 5
  files:
    toy.fa:
      lfn: "toy.fa"
      file_name: /scratch/toy.fa
      size: 607514
    toy.fa.bwt:
      lfn: "toy.fa.bwt"
      size: 600072
      output: True
      sha256: c65b
    a/odd: name.txt:
      lfn: "a/odd: name.txt"
      size: 11
      output: True
    gone.txt:
      error: 2
      lfn: "gone.txt"
    stdin:
      file_name: /dev/null
      size: 0
    stderr:
      size: 365
      data: |
        lfn: "noise"
        size: 99
        - invocation: True
      output: no
toy.fa.bwt=toy.fa.bwt
"""


def test_one_run() -> None:
    (invocation,) = kickstart.invocations(f"before\n{DOCUMENT}after\n")
    assert round(invocation.runtime_s, 3) == 0.190  # the program's, as pegasus-statistics
    assert (invocation.exitcode, invocation.host) == (0, "mu.adon.test")
    assert invocation.inputs == {"toy.fa": 607514}
    assert invocation.outputs == {"toy.fa.bwt": 600072, "a/odd: name.txt": 11}


def test_the_runs_of_a_clustered_job_are_kept_apart() -> None:
    second = DOCUMENT.replace("toy.fa.bwt", "other").replace("raw: 0", "raw: 768")
    earlier, later = kickstart.invocations(DOCUMENT + second)
    assert (earlier.exitcode, later.exitcode) == (0, 3)
    assert "other" in later.outputs and "other" not in earlier.outputs


def test_a_document_that_does_not_say_how_it_ended_is_torn() -> None:
    assert not kickstart.invocations(DOCUMENT[: DOCUMENT.index("    status:")])


@pytest.mark.parametrize(("status", "code"), [(768, 3), (9, -9), (139, -11), (-1, -128)])
def test_the_exit_code_is_pegasus_analyzers(status: int, code: int) -> None:
    """Of what a signal ended, or could not be started, kickstart writes no exit code."""
    ended = f"raw: {status}\n      signalled:\n        signal: 9\n"
    text = DOCUMENT.replace("raw: 0\n      regular_exitcode: 0\n", ended)
    (invocation,) = kickstart.invocations(text)
    assert invocation.exitcode == code


@pytest.mark.parametrize(
    "begun",
    ["[cluster-task ", "[seqexec-task ", "<prejob >", "<prejob ", "<statcall >", "<uname ",
     '<statcall id="stderr"><data>', "<invocation "],
)  # fmt: skip
def test_what_never_ends_is_looked_at_once(begun: str) -> None:
    """A program prints what it likes: with a look to the end for each, this took hours."""
    assert kickstart.invocations(f"<invocation a>{begun * 200_000}") == []


def test_an_element_that_does_not_end_hides_none_before_it() -> None:
    whole = '<statcall id="final" lfn="a"><statinfo mode="0100644" size="7"/></statcall>'
    text = (
        '<invocation start="2012-08-28T00:55:14-04:00" duration="1" hostname="n">'
        '<mainjob start="2012-08-28T00:55:14-04:00" duration="1"><status raw="0"></mainjob>'
        f'{whole}<statcall id="stderr"><data><![CDATA[a > b]]></data></statcall><statcall id="x">'
    )
    (record,) = kickstart.invocations(text)
    assert record.outputs == {"a": 7} and record.stderr == "a > b"


@given(st.text(max_size=200), st.integers(0, len(DOCUMENT)))
def test_anything_else_is_passed_over(noise: str, cut: int) -> None:
    kickstart.invocations(noise)
    for invocation in kickstart.invocations(DOCUMENT[:cut]):  # killed while writing
        assert invocation.inputs.items() <= {("toy.fa", 607514)}
        assert invocation.outputs.items() <= {("toy.fa.bwt", 600072), ("a/odd: name.txt", 11)}
    assert kickstart.invocations("") == []
