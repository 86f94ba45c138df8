"""The embedded planner: an executable workflow for DAGMan, on machines without Pegasus.

It writes a submit directory of Pegasus's own shape and leaves the work to DAGMan and
``pegasus-transfer``. It is no second Pegasus: what it cannot plan it refuses.

    abstract workflow + site per job ─► layout (pure) ─► submit files, lists, .dag ─► run0001/
"""

from pegasus_hooks.planner.model import ExecutableJob, Options, PlannedWorkflow
from pegasus_hooks.planner.plan import PLANNER_NAME, plan
from site_selector.catalogs.sources import Sources

__all__ = ["PLANNER_NAME", "ExecutableJob", "Options", "PlannedWorkflow", "Sources", "plan"]
