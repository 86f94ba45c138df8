"""What HTCondor says of a job, and what a run of it asks of the network.

jobad            a job's ad, read without HTCondor's bindings
sites            which site a slot is at, and a job
request_builder  the request for a run's path, and the id of that path
"""
