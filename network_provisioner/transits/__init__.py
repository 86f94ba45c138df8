"""How transits change in the broker's turn: placed, moved, extended, ended."""
