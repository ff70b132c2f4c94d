"""The exact values of operations as they are used today, by every convention: `spec.extended` over
balls.

    reading       what the arguments of attention mean, in the definitions' own words
    attention     its output and log-sum-exp
    derivatives   its gradients and tangents, by the written-out definitions or by series
    parts         the merge of two parts of the keys, and ALiBi
    rotary        frequencies, rotations and tables

Each function takes one mapping, the arguments of the oracle of its name by keyword, and returns
balls at the working precision; the tests and `judge` compare them with what the oracle encloses.
"""
