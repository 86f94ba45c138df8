"""A workflow with its catalogs, placed and planned: what commands, plug-in and demo share."""
