"""What became of a workflow: DAGMan's runs, its jobs' attempts, runtimes and transfers."""
