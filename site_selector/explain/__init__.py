"""Why each job is where it is, what would change it, and drawings of it."""
