"""A search for counterexamples: certificates that do not contain the exact value, and budgets that refuse honest kernels.

    climb          hill climbing: an input, its mutations, and how high the worst one gets
    inputs         adversarial families of inputs, those of certificates
    certificates   |exact − mid| / rad of an oracle's certificate, by the literal spec over balls
    rounding       every format by explicit rounding, and sums in every order
    kernels        honest kernels in every structure that a budget promises to cover
    budgets        error ÷ budget of such a kernel, with the families of inputs that get far
    chunks         both halves, as numbered chunks of work on several processes
    __main__       the command, and its tables

`python -m properties.measurements.benchmarks.attack` searches for as long as it is told.
"""
