"""Relays (SOS): agents that carry one TCP connection over the wide area for unmodified hosts."""
