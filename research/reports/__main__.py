"""Write docs/reports."""

from research.reports.pages import main

main()
