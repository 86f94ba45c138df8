"""Where the jobs of a workflow run.

    catalogs/ ──► inputs.py                               what Pegasus's files say
    archive, pool, catalogs ──► estimates/ ──► world.World   estimates, and where they are from
    inputs + world ──► problem.py                         the same as arrays
    cost.py                         T_t = T_q + S_c/(N·Γ_c) + S_t/min(Γ_t, Γ_a)
    mapping/estimator.py                                  when a whole mapping would end
    mapping/policies.py, search.py ──► mapper.py          candidates, the best of them, improved
    explain/                        why, as text; mapping/hinted.py tells Pegasus
    evaluation/                     how good mappings are, on traces

The functions most callers need::

    inputs = load_inputs("workflow.yml", "sites.yml", "replicas.yml", "transformations.yml")
    world = estimate_world(inputs, archive, now=time.time())
    mapping = map_workflow(inputs, world, output_site="iplant", seed=1)
    print(explain_text(mapping))
"""
