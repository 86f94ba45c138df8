"""Finds workflows and follows them into an archive until they end."""
