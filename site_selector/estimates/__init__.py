"""What is assumed of sites, paths and programs: each value with its source, age and spread."""
