"""Input that a slot fetches by URL: where it lies, how large it is, and what fetching it came to.

sources            which site a URL is of, and one path for each site
sizes              what servers say of it before it is fetched
transfer_history   what HTCondor reports about it afterwards, and what is to blame where it was slow
"""
