"""What all of monitoring knows: a measurement, an estimate, a thread."""
