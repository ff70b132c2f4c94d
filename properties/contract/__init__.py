"""The contract: operations, what an implementation promises, conversion of its arrays, and its
calls.
"""
