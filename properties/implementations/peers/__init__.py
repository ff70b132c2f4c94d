"""Released libraries under test, in the environment that `make peers` makes of `constraints.txt`, where each version is pinned.

    transformers_rotary   transformers: the frequencies and the rotations of its models
    rotary_layers         the rotary layers of torchtune, x-transformers, rotary-embedding-torch and keras-hub

A library is imported when its adapter is called: where it is not installed, that is an ImportError, and nothing else fails.
"""
