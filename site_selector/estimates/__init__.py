"""What is believed of sites, paths and programs: each value with its source, age and spread."""
