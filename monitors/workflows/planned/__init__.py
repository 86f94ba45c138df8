"""What Pegasus planned, and what hooks note beside it: submit directories, jobs, transfer lists."""
