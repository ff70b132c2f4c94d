"""Simulated kernels: honest code in a stated arithmetic, every intermediate result rounded as the
arithmetic says.

    rounding     every format by explicit rounding, and sums in every order
    forms        what kernels of attention do differently, and which of it a budget promises to cover
    attention    attention, its gradients and its tangent in every form
    features     … with what stands between a score and its exponential: softcap, bias, sink, fully masked rows
    frequencies  rotary frequencies, in the order of operations of the libraries that have them

Tests of budgets draw a few inputs for each form. `research.benchmarks.attack` climbs to the worst
ones.
"""
