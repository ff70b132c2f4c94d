import numpy as np


def alibi_slopes(num_heads):
    return 2.0 ** (-8 * np.arange(1, num_heads + 1) / max(num_heads, 1))


adapter = {"alibi_slopes": alibi_slopes}
