"""Recipes for released GPU kernels: each module calls the functions of one file of a package, which is
installed without its dependencies, and declares what they promise.

    pip install --no-deps --target kernels liger-kernel==0.8.5
    PYTHONPATH=kernels attnspec verify systems/kernels/liger_rope.py --interpret --quick

No source is copied. A recipe whose package is not on the import path is shown as not run. `released`,
`vendors`, `paging` and `rotating` are what recipes share.
"""
