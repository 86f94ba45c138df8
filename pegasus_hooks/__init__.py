"""What Pegasus calls: the planner's side and the scripts around every transfer job.

``pre`` and ``post`` are the two scripts DAGMan runs; they use the standard library only, start in
milliseconds and never fail a workflow; what they do is in ``prepost``. ``watcher`` releases what
they could not (:mod:`monitors.watcher`). ``advance`` reserves for whole workflows, ``provisioning``
puts jobs into them that prepare pool and network. ``planner`` is the embedded planner for machines
without Pegasus, ``pegasus_plan`` the adapter to the real one.

For the real planner's choice of sites: ``plugin``, which it asks once per workflow, ``callout``,
which it asks once per job, and ``install``, which puts either into a Pegasus and takes it out.
"""
