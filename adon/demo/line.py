"""The line, from abstract workflow to measured transfer, on a testbed that is up.

Each step is a call of the package whose subject it is; here they are only put in order.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from adon.demo import gather, running, steps
from adon.demo.facts import RunFacts
from adon.demo.figures import as_json
from adon.demo.options import DemoOptions
from adon.demo.page import render
from adon.demo.summary import summary_text
from adon.demo.supervise import BrokerProcess
from adon.planning import plan_workflow
from adon.testbed import leftovers
from adon.testbed.testbed import Programs, Testbed
from monitors.archive import Archive
from network_provisioner.errors import AdonError
from pegasus_hooks.planner.model import Options, Sources


def main(argv: Sequence[str] | None = None) -> int:
    """Run the line as the JSON argument says: 0 success, 1 the workflow failed, 2 bad input."""
    options = DemoOptions.from_json((argv or sys.argv[1:])[0])
    say = steps.clock(options.started)
    try:
        facts = run(options, say)
        paths = write_report(facts, options.report)
    except AdonError as error:
        print(f"adon: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"adon: {error.filename or options.state}: {error.strerror}", file=sys.stderr)
        return 2
    print(summary_text(facts, paths))
    return 0 if facts.state == "success" else 1


def run(options: DemoOptions, say: steps.Say) -> RunFacts:
    """Bring the testbed up, run the workflow, gather what happened. Raises AdonError."""
    run_dir = options.state / "testbed"
    _clear(run_dir)
    programs = Programs(options.condor, options.gridftp, options.bio, options.openvswitch)
    with ExitStack() as stack:
        testbed = stack.enter_context(Testbed(run_dir, programs, say))
        archive = stack.enter_context(Archive(options.state / "archive.sqlite"))
        earlier = gather.learnt(archive)
        config, url = steps.write_config(options, testbed.real, run_dir)
        say("broker: gives paths and bandwidth on request")
        broker = stack.enter_context(BrokerProcess(config, url, run_dir / "broker.log"))
        made = steps.make_workflow(options, testbed.write(), run_dir / "workflow", say)
        broker.ready()
        before, placed = steps.choose_sites(made, archive, testbed.pool, options.seed, say)
        planned = plan_workflow(
            placed.inputs,
            Sources(made.workflow),
            placed.mapping,
            run_dir / "submit",
            steps.OUTPUT_SITE,
            steps.write_hooks(url, options.state / "archive.sqlite", run_dir),
            Options(user=testbed.pool.user.name),
            running.pegasus_runner(testbed.pool),
        )
        say(planned.output)
        end = running.follow(planned, testbed.pool, archive, say)
        science = {}
        if end.state == "success":
            science = steps.check_science(made, testbed.site_dir(steps.OUTPUT_SITE) / "storage")
        return gather.gather(
            planned=planned,
            network="openflow" if testbed.real else "simulated",
            network_note=options.network_note,
            before=before,
            placed=placed,
            earlier=earlier,
            end=end,
            archive=archive,
            client=broker.client,
            samples=broker.samples,
            science=science,
            warnings=broker.warnings,
        )


def _clear(run_dir: Path) -> None:
    """Forget an earlier run: what of it was killed and has not ended yet, its sites, its submit
    directory, and what its broker had promised on switches that are gone with it. Keys, pool and
    logs are used again. Raises AdonError, OSError."""
    left = leftovers.end_marked(run_dir.resolve())
    if left:
        raise AdonError(f"process {left[0].pid} of an earlier run in {run_dir} does not end")
    for stale in ("sites", "submit", "workflow"):
        shutil.rmtree(run_dir / stale, ignore_errors=True)
    run_dir.mkdir(parents=True, exist_ok=True)
    for stale_file in run_dir.glob("broker.sqlite*"):
        stale_file.unlink()


def write_report(facts: RunFacts, folder: Path) -> tuple[Path, Path]:
    """Write ``report.html`` and ``report.json``, each whole or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    data = json.dumps(as_json(facts), indent=1, ensure_ascii=False, allow_nan=False)
    page, numbers = folder / "report.html", folder / "report.json"
    for file, text in ((page, render(facts)), (numbers, data + "\n")):
        draft = file.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    return page, numbers


if __name__ == "__main__":
    sys.exit(main())
