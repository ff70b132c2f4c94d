"""The contract between laws and kernels: the operations, what an implementation declares, the
conversion of its arrays, and calls of it.
"""
