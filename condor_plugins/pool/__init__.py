"""The pool grows before work arrives, and shrinks when it is over.

    leases ─┐
    queue ──┼─► scaling.plan (a pure function) ─► cloud starts and deletes machines
    dags ───┘      supply ┘

``leases`` are what was asked for by name, and end by themselves; ``queue`` is what jobs ask for and
which machines take them; ``dags`` is what running DAGs will ask for, by estimated ``run_times``;
``supply`` are the machines there are. ``scaling`` decides, by playing ``schedule`` forward;
``expander`` does one cycle after the other; ``cloud`` has the clouds. ``sitepool`` is what a pool
offers at each site.
"""
