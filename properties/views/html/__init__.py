"""Reports as a page: one file that opens from disk, shows every verdict, and explains each.

page              the page of one or several reports, written whole or not at all
portrait          the page of portraits, with maps of what the instruments measured
rendering         the templates of pages, filled in
matrix            what the page's JavaScript shows: laws, implementations, and a verdict for each pair
violations        what the page says about a law that fails
environment       where a report comes from: versions and machine
figures           pictures, one module each
"""
