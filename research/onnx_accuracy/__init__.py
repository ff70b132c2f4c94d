"""The accuracy page of ONNX's Attention, vectors/onnx/accuracy.md: the bounds that it states, and its tables.

bounds      the page's bounds of propagated and introduced errors
measured    ONNX's function body in NumPy, its errors, and the error limits of `oracles`
__main__    `python -m research.onnx_accuracy` writes the tables into the page
"""
