"""Where each job goes: policies, list scheduling and a search, judged by one estimator."""
