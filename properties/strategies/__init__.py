"""What is drawn: Hypothesis strategies over everything legal for an implementation, which shrink towards small readable cases."""
