"""Where transits and documents outlive the broker: SQLite or PostgreSQL."""
