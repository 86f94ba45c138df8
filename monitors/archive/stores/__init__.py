"""Where the archive is kept: SQLite, PostgreSQL."""
