"""Simulated kernels: right code in a stated arithmetic, which rounds every intermediate result as
the arithmetic says.

    rounding     every format by explicit rounding, and sums in every order
    forms        the choices of attention kernels, and which of them a budget promises to cover
    attention    attention, its gradients and its tangent in every form
    features     the same with a softcap, a bias, a sink and fully masked rows
    frequencies  rotary frequencies, in the order of operations of the libraries that have them
    single_roundings  float64 attention with one coarse rounding, for each row of the table of roundings

Tests of budgets draw a few inputs for each form. `research.benchmarks.attack` searches for the
worst inputs.
"""
