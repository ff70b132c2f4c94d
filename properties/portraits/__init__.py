"""Portraits: what a kernel computes, found out by calls, without a declaration."""
