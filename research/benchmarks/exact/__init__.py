"""The exact values of current operations under every convention: `spec.extended` over balls.

    reading       translates the arguments of attention into those of the definitions
    attention     its output and log-sum-exp
    derivatives   its gradients and tangents, by the written-out definitions or by series
    parts         the merge of two parts of the keys, and ALiBi
    rotary        frequencies, rotations and tables

Each function takes one mapping, the keyword arguments of the oracle with the same name, and returns
balls at the working precision. The tests and `judge` compare these with the enclosures of the
oracle.
"""
