"""Where files lie: what sources of data hold, written as a replica catalog.

listings.py ──► catalog.py      sources, as `adon site replicas` writes them
order.py                        the replica that arrives soonest
"""
