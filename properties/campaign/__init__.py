"""Campaigns: many cases of many implementations, in chunks, and climbs towards the worst input of each."""
