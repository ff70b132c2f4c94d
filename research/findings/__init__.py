"""The suite's findings about the systems under test: `python -m research.findings` writes
docs/findings.md.

    libraries/*.toml   findings about released libraries; `research.peers` writes docs/peers.md
    systems/*.toml     findings about systems under test that differ from their documentation
    loader             reads these files: a table [[finding]] is one finding, a file has the name
                       of its library
    finding            the fields of every finding
    library, system    the further fields of a finding of either folder, and how its script runs
    measuring          functions that the scripts of `systems` share
    expected           computes the expected text of a script again, by the oracles
    confirmed          twenty randomly chosen findings about libraries, computed again by mpmath
    page               the findings of `systems`, the declared deviations, and the errata of the
                       spec

A script prints the actual result. To add a finding, copy a table [[finding]] and change each value.
"""
