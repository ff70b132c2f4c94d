"""The functions of `spec`, batched and fast, each value with a rigorous enclosure."""
