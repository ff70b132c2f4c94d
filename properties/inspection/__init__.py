"""Instruments that measure what a kernel computes, by inputs that make it show."""
