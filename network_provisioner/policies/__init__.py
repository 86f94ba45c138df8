"""Who shares which queue, by policies that operators post, and who used how much."""
