"""What execute nodes report about themselves in their slot ads, by programs for HTCondor's
STARTD_CRON: ``metrics`` of the host, ``paths`` that the broker knows; ``setup`` writes HTCondor's
settings.
"""
