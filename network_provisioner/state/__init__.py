"""The network as it is promised: who holds what and when, who waits. No effects."""
