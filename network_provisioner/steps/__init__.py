"""What becomes of transits in the broker's turn: renewed, changed, moved, taken back."""
