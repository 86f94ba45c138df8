"""What Pegasus planned: submit directories, submit files, transfer lists, the DAG. Read only."""
