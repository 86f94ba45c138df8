"""Where files lie: what sources hold as a replica catalog, and catalogs in databases.

directory.py, web.py, zone.py ──► catalog.py      sources, as `adon site replicas` writes them
order.py                                          the replica that arrives soonest
database.py                                       Pegasus's JDBCRC
"""
