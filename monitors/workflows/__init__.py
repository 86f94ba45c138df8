"""What the archive says of workflows: all of them, one in detail, and why it failed."""
