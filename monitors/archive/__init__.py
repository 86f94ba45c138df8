"""What is measured, kept: the archive, its estimates, its retention, and ways out of it."""
