"""The texts for maintainers in docs/reports: a page for each library, a report for each defect.

    python -m research.reports

    pages          the pages: the findings of research/findings, and what docs/peers.md and
                   docs/native.md measured
    trackers       reads the table of the trackers
    trackers.toml  a table for each tracker: its repository, its stars, its form for bug reports

No script runs here. To add a form, write its headings in the order of the form, and under each
heading what stands there. A text may name the parts of a report in braces (`pages.parts`).
"""
