"""The report of one run: a page that is self-contained, and its values as JSON.

submit directory, archive, broker ─► RunFacts ─► page.html and report.json
"""
