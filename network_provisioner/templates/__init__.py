"""What applications need: read, matched, learned, kept in versions."""
