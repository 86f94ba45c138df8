"""The report of one run: a page that stands alone, and its values as JSON.

submit directory, archive, broker ─► RunFacts ─► page.html and report.json
"""
