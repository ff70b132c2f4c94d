"""What was found in the libraries around PyTorch, and in PyTorch once more."""

from properties.measurements.findings import peers_local, peers_modules, peers_pytorch, peers_transformers, peers_x_transformers

__all__ = ["FINDINGS"]

FINDINGS = [
    found for module in (peers_transformers, peers_x_transformers, peers_local, peers_modules, peers_pytorch) for found in module.FINDINGS
]
"""Each with a script that shows it."""
