"""A search for counterexamples: certificates that do not contain the exact value, and budgets that
refuse honest kernels.

    calls              arguments of an operation, as `properties` draws them, and their mutations
    inputs             adversarial numbers, which the strategies of `properties` do not draw
    features           families of attention with its features
    parts              families of merges of parts of the keys, and of ALiBi
    frequencies        families of rotary frequencies, rotations and tables
    certificates       |exact − mid| / rad of an oracle's certificate, judged by the literal spec
                       over balls: the table of operations
    arithmetics        the arithmetics of honest kernels; `oracles.tests.simulated` has the kernels
    plain_budgets      error ÷ budget of an honest kernel of attention
    featured_budgets   error ÷ budget of attention with features
    part_budgets       error ÷ budget of merges and ALiBi
    rotary_budgets     error ÷ budget of rotary encodings
    budgets            the table of all budgets
    chunks             both halves, as numbered chunks of work on several processes
    __main__           the command, and its tables

`properties.strategies.climb` does the hill climbing. A new operation is a row of
`certificates.OPERATIONS`, with families that draw it, and a row of `budgets.TARGETS`, with a
kernel. `python -m research.benchmarks.attack` searches for a given time.
"""
