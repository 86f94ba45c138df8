"""How good mappings are, measured: traces of real workflows on made-up platforms, executed with
values that those who mapped them did not know.

    traces       the workflow in a trace, as values, read from WfFormat
    worlds       made-up platforms; a trace on one as a problem, as estimated and as it truly is
    bounds       what no mapping can go below, and the best mapping found with the truth
    cases        one trace on one platform: every policy in every regime
    report       what the cases come to: tables, and the whole as JSON
    adversary    searches for platforms and workflows on which ADON loses
"""
