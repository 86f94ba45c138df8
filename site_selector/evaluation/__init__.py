"""How good mappings are, measured: traces of real workflows on made-up platforms, executed with
values that those who mapped them did not know.

    wfformat     reads traces (WfFormat)
    trace        the workflow in a trace, as values
    platform     made-up sites, links and queues; what is assumed of them
    worlds       trace and platform as a problem, as estimated and as it truly is
    simulator    executes a mapping with the true values
    bounds       what no mapping can go below
    contenders   those whose mappings are compared
    reference    the best mapping found with the truth
    cases        one trace on one platform: every policy in every regime
    report       what the cases come to: tables, and the whole as JSON
    adversary    searches for platforms and workflows on which ADON loses; puzzles keeps them
"""
