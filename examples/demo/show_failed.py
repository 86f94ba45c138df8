"""What went wrong: what cut the run short, failed jobs with their last words, and where to look."""

from __future__ import annotations

from examples.demo import markup
from examples.demo.facts import RunFacts
from examples.demo.words import counted, failure_words
from monitors.workflows.report import Failure

_MOST = 50


def failed(facts: RunFacts) -> str:
    """The section's content; nothing for a success."""
    if facts.state == "success":
        return ""
    told = [words for words in (facts.stopped, facts.reason, *facts.waiting) if words]
    out = markup.bullets(told)
    for index, failure in enumerate(facts.failures[:_MOST]):
        out += markup.details(failure_words(failure), _about(failure), opened=index == 0)
    if len(facts.failures) > _MOST:
        more = counted(len(facts.failures) - _MOST, "more failed job")
        out += markup.note(f"And {more}, see report.json.")
    if facts.submit_dir:
        out += markup.note(f"All files of the run are in {facts.submit_dir}")
    return out or markup.note(f"The workflow ended as {facts.state}.")


def _about(failure: Failure) -> str:
    out = markup.note(f"HTCondor: {failure.reason}") if failure.reason else ""
    if failure.tail:
        out += markup.scroller(f"Last words of {failure.job}", markup.verbatim(failure.tail))
    return out + markup.bullets(str(path) for path in failure.files)
