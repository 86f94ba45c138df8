"""What HTCondor says of a job, and what a run of it asks of the network.

jobad            a job's ad, read without HTCondor's bindings
request_builder  the request for a run's path, and the id of that path
"""
