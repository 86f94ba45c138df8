"""Changes in what is measured that are more than noise."""
