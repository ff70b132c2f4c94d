"""The contract between laws (properties that attnspec checks) and kernels: the operations, what an
implementation declares, the conversion of its arrays, and the calls of its functions.
"""
