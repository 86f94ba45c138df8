"""Who holds what and when: the ledger in time, max-min sharing, the queue. No effects."""
