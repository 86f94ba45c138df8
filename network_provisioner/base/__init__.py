"""What everything else stands on: errors, units, clocks, words of the network; quick to import."""
