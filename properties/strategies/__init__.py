"""What cases are: domains of sizes and numbers, and all that is chosen from a seed."""
