"""Released libraries under test, in the environment that `make peers` makes of `constraints.txt`, where each version is pinned.

    transformers_rotary   transformers: the frequencies and the rotations of its models
    transformers_laws     the same, as implementations that are put to the laws
    rotary_layers         the rotary layers of torchtune, x-transformers, rotary-embedding-torch and keras-hub

A library is imported when its adapter is called: where it is not installed, that is an ImportError, and nothing else fails.
"""
