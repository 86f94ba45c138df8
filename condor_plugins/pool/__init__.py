"""The pool grows for a demand and shrinks when it is over.

    demand ─► plan (a pure function) ─► a driver ─► workers that join the pool, and leave it

A demand has an id, so that asking twice grows the pool once, and a lease, so that whoever never
comes back leaves nothing behind: after it a worker takes no new job, and one that no job has
claimed for a while ends by itself.

``demand`` holds the values and the decision, ``driver`` what a driver can do; ``startd`` starts
HTCondor's own daemons on this machine, ``command`` calls a program of the admin's. ``sitepool`` is
what a pool offers at each site, ``sites`` tells which site a slot or a job is at.
"""
