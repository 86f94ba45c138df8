"""Provisioning jobs: a workflow prepares pool and network for what it will need next.

    abstract workflow ─► wide stretches ─► what each needs ─► two jobs around each ─► the workflow
                         (levels)          (needs)            (insertion)

    adon::provision   before a wide stretch: enlarges the pool, asks the broker for paths
    adon::release     after it: gives both back

"It is possible to insert additional tasks into the workflow that modify the slice to prepare it for
its future tasks" (Montage paper, section 2.2). Both jobs run on the submit host, may run twice, and
always succeed: what they cannot get, the workflow does without. What they got ends by its lease
where the second one never runs.

``levels`` and ``needs`` are pure; ``step`` is what a job is told, as its arguments; ``jobs`` makes
the jobs with Pegasus's API and ``insertion`` puts them into the text; ``job`` is the program,
``running`` what it does. ``step``, ``job`` and ``running`` use the standard library only.
"""
