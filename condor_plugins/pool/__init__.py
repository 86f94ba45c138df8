"""The pool grows before work arrives, and shrinks when it is over.

    leases, queue, forecast ─► plan (a pure function) ─► a cloud starts and deletes machines

A lease goes by a name, so that asking twice grows the pool once, and ends by itself, so that
whoever never comes back leaves nothing behind.

``leases`` are what was asked for, ``scaling`` decides, by playing ``schedule`` forward, ``cloud``
has the clouds. ``sitepool`` is what a pool offers at each site, ``sites`` tells which site a slot
or a job is at.
"""
