import numpy as np

_tables = {}


def rope_tables(seq_len, head_dim, start_pos=0):
    key = seq_len, head_dim
    if key not in _tables:
        pairs = np.arange((head_dim + 1) // 2)
        positions = np.arange(start_pos, start_pos + seq_len)[:, None]
        angle = positions * 10000.0 ** (-2 * pairs / max(head_dim, 1))
        angle = np.repeat(angle, 2, -1)[:, :head_dim]
        _tables[key] = np.cos(angle), np.sin(angle)
    return tuple(table.copy() for table in _tables[key])


adapter = {"rope_tables": rope_tables}
