"""The dashboard: pages that the broker serves, and the routes that are theirs alone.

The pages are files of ours, nothing is fetched from elsewhere and nothing has to be built: one
``index.html``, one style sheet, and ES modules that ask the REST API for everything they show. So a
page sees what its token may see, and no more.
"""
