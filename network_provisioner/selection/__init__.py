"""Which path a transit gets: candidates, their scores, splitting, moving others. Pure."""
