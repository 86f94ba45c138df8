"""How long measurements are kept whole, and the roll-ups that stay of them."""
