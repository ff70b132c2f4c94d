"""A search for counterexamples: certificates that do not contain the exact value, and budgets that
refuse honest kernels.

    calls              arguments of an operation: what the strategies of `properties` draw, and what a mutation changes
    inputs             adversarial numbers: those that the strategies do not draw
    features           families of attention as it is used today,
    parts              … of merges of its parts, and of ALiBi,
    frequencies        … of rotary frequencies, rotations and tables
    certificates       |exact − mid| / rad of an oracle's certificate, by the literal spec over balls: the table of operations
    arithmetics        what honest kernels round: these are `oracles.tests.simulated`
    plain_budgets      error ÷ budget of such a kernel, with the families of inputs that get far; with features (featured_budgets), of
                       merges and ALiBi (part_budgets), of rotary encodings (rotary_budgets)
    budgets            the table of them all
    chunks             both halves, as numbered chunks of work on several processes
    __main__           the command, and its tables

Hill climbing itself is `properties.strategies.climb`. A new operation is a row of
`certificates.OPERATIONS`, with families that draw it, and a row of `budgets.TARGETS`, with a
kernel.
`python -m research.benchmarks.attack` searches for as long as it is told.
"""
