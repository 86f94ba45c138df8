"""Sites, hosts and links as a graph: read, written, discovered, and searched for paths."""
