"""Strategies: domains of sizes and numbers, and every choice that a seed makes."""
