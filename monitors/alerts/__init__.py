"""What people are told: anomalies in what is measured, and notices."""
