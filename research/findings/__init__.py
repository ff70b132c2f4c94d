"""What the suite found about the systems that it was put to: `python -m research.findings` writes
docs/findings.md.

    libraries/*.toml   findings about released libraries, which `research.peers` writes to docs/peers.md
    systems/*.toml     findings about systems under test that differ from their documentation
    loader             reads these files; a table [[finding]] is one finding, and a file is named after its library
    finding            what every finding has
    library, system    what a finding of either folder has, and how its script is run
    measuring          what the scripts of `systems` share
    expected           computes what a script should print again, by the oracles
    confirmed          twenty findings about libraries, drawn by chance, computed once more by mpmath alone
    page               the findings of `systems`, the deviations that implementations declare, and the errata of the spec

A script prints what comes out. Add a finding: copy a table [[finding]] and change each value.
"""
