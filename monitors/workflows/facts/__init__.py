"""What became of a workflow's jobs: attempts, runtimes, transfers, each as measurements."""
