"""What the suite found about the systems that it was put to: `python -m research.findings` writes docs/findings.md.

    finding                                   what a finding is: a smallest input, what should come out of it, and what does
    positional_embeddings_jl, leximind …      one module for each system whose documentation or behaviour is at odds with itself
    shown                                     a finding about a released library: a script, a line of its source, and what should come out
    rotary_peers, peers_jax, peers_keras …    such findings, which `research.peers` writes to docs/peers.md
    confirmed                                 twenty of these, drawn by chance, computed once more by mpmath alone
    page                                      all of it, with the deviations that implementations declare, and the errata of the spec

Every number is computed when the page is written.
"""
