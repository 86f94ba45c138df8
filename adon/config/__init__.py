"""adon.yml: read and checked."""
