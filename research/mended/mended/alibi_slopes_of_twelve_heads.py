import numpy as np


def alibi_slopes(num_heads):
    power = 1 << max(num_heads.bit_length() - 1, 0)
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-8 * np.arange(1, 2 * power, 2) / (2 * power))
    return np.concatenate([slopes, between])[:num_heads]


adapter = {"alibi_slopes": alibi_slopes}
