"""Paths for the files that HTCondor itself moves between an access point and a slot.

    shadow_prepare   before a job's input: asks for its path     (SHADOW_PREPARE_JOB, once per run)
    watch            releases, and asks for the output's path  (a daemon of condor_master)

Both go by the same words: a *run* is one start of a job's shadow, and holds at most one path in
and one path out, whose ids name it. What is known about a run comes from the job's ad
(:mod:`condor_plugins.jobs`), from HTCondor's event log (``run_state``) and from its queue
(``schedd``); ``decide`` says what is to be done, and is pure. The watcher is made of
:mod:`monitors.watcher`'s pending actions and loop.
"""
