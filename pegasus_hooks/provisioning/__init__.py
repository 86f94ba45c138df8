"""Provisioning jobs: a workflow prepares pool and network for what it will need next.

    abstract workflow ─► wide levels ─► what they need ─► two jobs around them ─► the workflow
                         (wide_levels)                   (insertion)

    adon::provision   before wide levels: enlarges the pool, asks the broker for paths
    adon::release     after them: releases both

"It is possible to insert additional tasks into the workflow that modify the slice to prepare it for
its future tasks" (Montage paper, section 2.2). Both jobs run on the submit host, may run twice, and
always succeed: what they cannot get, the workflow does without. What they got ends by its lease
where the second one never runs.

``wide_levels`` is pure; ``step`` is what a job is told, as its arguments; ``insertion`` makes the
jobs with Pegasus's API and puts them into the text; ``job`` is the program, ``running`` what it
does. ``step``, ``job`` and ``running`` use the standard library only.
"""
