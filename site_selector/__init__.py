"""Where the jobs of a workflow run.

    workflow.py (dag.py), catalogs.py (hints.py) ──► inputs.py    what Pegasus's files say
    archive, pool, catalogs ──► estimates.py ──► beliefs.World    what is believed, and from where
    inputs + world ──► problem.py                         the same as arrays
    cost.py                         T_t = T_q + S_c/(N·Γ_c) + S_t/min(Γ_t, Γ_a)
    simulate.py                                           when a whole mapping would end
    policies.py, schedule.py, search.py ──► mapping.py    candidates, the best of them, improved
    reasons.py, explain.py                                why, in words; hinted.py tells Pegasus

The functions most callers need::

    inputs = load_inputs("workflow.yml", "sites.yml", "replicas.yml", "transformations.yml")
    world = believe(inputs, archive, now=time.time())
    mapping = map_workflow(inputs, world, output_site="iplant", seed=1)
    print(explain_text(mapping))
"""
