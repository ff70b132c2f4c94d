"""Attention with today's features, and rotary frequencies: our definitions, not TorchLean's.

    attention                grouped heads, mask, window, bias, softcap, sink, log-sum-exp; the merge of two parts
    attention_steps          its steps, one function for each
    attention_derivatives    the cotangents of all inputs, and the tangents of both outputs
    alibi                    the slopes and the bias of ALiBi
    rotary_frequencies       the frequencies of a rotary encoding, by kind
    frequency_kinds          default, linear, dynamic, longrope, proportional
    frequency_bands          YaRN and llama3
    rotary                   the rotation: of some channels, by given frequencies, at positions of one or three axes
    released                 the numbers of released models
    arguments                what is refused

Start at `attention` and `rotary_frequencies`. They are written as the literal definitions of `spec`
are, over the same scalars, to be the judge of fast code. Where libraries disagree, the text is one
reading, the one that most of them have; another is put together from the steps, or from other
arguments.
"""
