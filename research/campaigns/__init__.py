"""Campaigns, measured: what is lost when workers, the driver and the disk fail, what the engines
cost, and 1,000 workers on paper.
"""
