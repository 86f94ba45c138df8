"""The line, from abstract workflow to measured transfer, on a testbed that is up.

Each step is a call of the package whose subject it is; here they are only put in order.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from adon.planning.planner import plan_workflow
from adon.report.document import write_report
from condor_plugins.waiting import StuckJob
from examples import scenario as scenarios
from examples.demo import gather, running, steps
from examples.demo.demo_run import DemoRun, Interrupted, interruptible, reason
from examples.demo.expected_gain import best_effort_only, makespan_without_adon
from examples.demo.facts import DemoFacts, as_json
from examples.demo.options import DemoOptions
from examples.demo.sections import demo_page
from examples.demo.summary import summary_text
from examples.demo.supervise import BrokerProcess, watching
from examples.testbed.procs import end_marked
from examples.testbed.testbed import Programs, Testbed
from monitors.archive.archive import Archive
from monitors.archive.knowledge import Knowledge
from monitors.watcher import registry
from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.data import topology_from_dict
from pegasus_hooks.planner import Options, Sources
from site_selector.inputs import load_inputs

CHECK = "/usr/bin/test 0 -eq $RETURN"  # of transfer jobs without hooks, in place of their POST

Trouble = AdonError | OSError | Interrupted
"""What can cut a run short."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the line as the JSON argument says.

    Returns 0 for success, 1 where the workflow failed, 2 for bad input and for what kept the run
    from its end, and 128 and the signal's number where one stopped it.
    """
    options = DemoOptions.from_json((argv or sys.argv[1:])[0])
    say = steps.clock(options.started)
    try:
        with interruptible():
            facts, trouble = run(options, say)
            paths = _report(facts, options.report, trouble)
    except (AdonError, OSError, Interrupted) as error:
        trouble, paths = error, None
    if paths:
        print(summary_text(facts, paths), flush=True)
    if trouble is not None:
        print(f"adon: {reason(trouble)}", file=sys.stderr)
        return 128 + trouble.number if isinstance(trouble, Interrupted) else 2
    return 0 if facts.state == "success" else 1


def run(options: DemoOptions, say: steps.Say) -> tuple[DemoFacts, Trouble | None]:
    """Bring the testbed up, run the workflow, gather what happened.

    What cuts the run short while the testbed is up is returned beside what had happened until then.
    Raises AdonError, OSError and Interrupted where it does not come so far.
    """
    run_dir = options.state / "testbed"
    clear(run_dir)
    scenario = scenarios.load(options.example).on(options.network)
    paths = options.programs
    programs = Programs(
        paths["condor"], paths["gridftp"], paths[scenario.tools], paths.get("openvswitch")
    )
    archive_file = options.state / "archive.sqlite"
    with ExitStack() as stack:
        testbed = stack.enter_context(
            Testbed(scenario.layout, run_dir, programs, say, scenario.zone)
        )
        archive = stack.enter_context(Archive(archive_file))
        earlier = gather.learnt(archive)
        config, url = steps.write_config(scenario, testbed.real, archive_file, run_dir)
        say("broker: gives paths and bandwidth on request")
        broker = stack.enter_context(BrokerProcess(config, url, run_dir / "broker.log"))
        hooks = steps.write_hooks(scenario.template, url, archive_file, run_dir)
        stack.enter_context(watching(hooks, run_dir / steps.WATCH))
        state = DemoRun()
        try:
            _go(state, scenario, options, testbed, archive, earlier, broker, say)
        except (AdonError, OSError, Interrupted) as error:
            state.trouble = running.behind(error, run_dir)
            say(f"stopped: {state.stopped}")
        facts = gather.gather(
            state,
            scenario.name,
            network="openflow" if testbed.real else "simulated",
            network_note=options.network_note,
            earlier=earlier,
            archive=archive,
            broker=broker,
        )
        as_adon = options.hooks and not options.selector
        if facts.state == "success" and testbed.real and state.placed and as_adon:
            facts.without = makespan_without_adon(
                state.placed.inputs,
                Knowledge(archive),
                topology_from_dict(scenario.layout.topology()),
                {site.name: site.workers for site in scenario.layout.sites},
                scenario.output_site,
                time.time(),
            )
        return facts, state.trouble


def _go(
    state: DemoRun,
    scenario: scenarios.Scenario,
    options: DemoOptions,
    testbed: Testbed,
    archive: Archive,
    earlier: int,
    broker: BrokerProcess,
    say: steps.Say,
) -> None:
    """The steps, each noted in ``state``. Raises AdonError, OSError, Interrupted."""
    run_dir, settings, selector = testbed.run_dir, options.settings, options.selector
    state.step = "the data and the workflow were made"
    workflow_dir = run_dir / "workflow"
    say(scenario.make(settings, testbed.write(), workflow_dir))
    state.step = "the broker started"
    broker.ready()
    state.step = "sites were chosen"
    topology = topology_from_dict(scenario.layout.topology())
    inputs = load_inputs(workflow_dir / "workflow.yml")
    if options.hooks:
        inputs = inputs.within(templates_from_dict(scenario.templates)[scenario.template])
    state.before, state.placed = steps.choose_sites(
        inputs,
        scenario.output_site,
        topology if options.hooks else best_effort_only(topology),
        archive,
        earlier,
        testbed.pool,
        settings["seed"],
        say,
    )
    if selector:
        state.before = state.placed = steps.as_pegasus(state.placed, selector, options.draw, say)
    state.step = "the workflow was planned"
    state.planned = plan_workflow(
        state.placed.inputs,
        Sources(workflow_dir / "workflow.yml"),
        state.placed.mapping,
        run_dir / "submit",
        scenario.output_site,
        run_dir / steps.HOOKS if options.hooks else None,
        Options(user=testbed.pool.user.name, check="" if options.hooks else CHECK),
        running.pegasus_runner(testbed.pool),
        selector,
    )
    say(state.planned.output)
    state.step = "the workflow ran"
    state.submitted_at = time.time()

    def on_stuck(stuck_jobs: Sequence[StuckJob]) -> None:
        state.stuck = stuck_jobs

    with running.recorded_size(testbed.pool, archive):
        state.end = running.follow(
            state.planned, testbed.pool, archive, say, on_stuck, options.most_s
        )
    state.step = "the result was compared with the truth"
    if state.end.state == "success":
        results = testbed.site_dir(scenario.output_site) / "storage"
        state.science = scenario.check(workflow_dir, results)


def _report(facts: DemoFacts, folder: Path, trouble: Trouble | None) -> tuple[Path, Path] | None:
    """Write the report. Raises InputError and OSError, but not for a run that was cut short: what
    cut it short may have left no room, and that is what must be reported."""
    try:
        return write_report(folder / "report.html", demo_page(facts), as_json(facts))
    except (InputError, OSError):
        if trouble is None:
            raise
        return None


def clear(run_dir: Path) -> None:
    """Forget an earlier run: what of it was killed and has not ended yet, its sites, its submit
    directory, and what its broker had promised on switches that are gone with it. Keys, pool and
    logs are used again. Raises AdonError, OSError."""
    if (run_dir / steps.WATCH).is_dir():
        registry.end(run_dir / steps.WATCH)
    end_marked(run_dir.resolve())
    for stale in ("sites", "submit", "workflow", steps.WATCH):
        shutil.rmtree(run_dir / stale, ignore_errors=True)
    run_dir.mkdir(parents=True, exist_ok=True)
    for stale_file in run_dir.glob("broker.sqlite*"):
        stale_file.unlink()


if __name__ == "__main__":
    sys.exit(main())
