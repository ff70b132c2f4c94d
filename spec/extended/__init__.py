"""Attention with today's features, and rotary frequencies: our definitions, not TorchLean's.

    attention                grouped heads, mask, window, bias, softcap, sink, log-sum-exp; the merge of two parts
    attention_steps          its steps, one function for each
    attention_derivatives    the cotangents of all inputs, and the tangents of both outputs
    attention_layer          attention between projections with biases, over a context, with grouped heads
    latent                   attention over latent rows, whose first channels are the values
    quantised                attention over codes on a grid, with scales
    quantised_sequences      the same in packed sequences and in pages
    packed                   attention over sequences that lie one behind the other, and its cotangents
    paged                    attention over keys in pages that a table assigns to the sequences
    alibi                    the slopes and the bias of ALiBi
    relative_bias            the bias of T5, by buckets of distances, and Swin's index of offsets in a window
    sequence_masks           masks of documents, prefixes, chunks, trees, and padding; positions beside padding
    rotary_frequencies       the frequencies of a rotary encoding, by kind
    frequency_kinds          default, linear, dynamic, longrope, proportional
    frequency_bands          YaRN and llama3
    rotary                   the rotation: of some channels, by given frequencies, at positions of one or three axes
    released                 the numbers of released models
    arguments                which arguments are refused

Start at `attention` and `rotary_frequencies`. The definitions have the style of the literal
definitions of `spec`, and run over the same scalars, so fast code can be compared with them. Where
libraries disagree, a definition follows the convention of most libraries. Other conventions are
composed from the steps, or come from other arguments.
"""
