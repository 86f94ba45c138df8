"""How transits change in the broker's cycle: placed, moved, extended, ended."""
