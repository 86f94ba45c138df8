"""What Pegasus's files say: workflows, sites, replicas, transformations."""
