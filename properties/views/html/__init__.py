"""Makes a page from reports: one file that opens from disk, shows every verdict, and explains each.

page              the page of one or several reports, written completely or not at all
portrait          the page of portraits, with maps of what the instruments measured
rendering         the templates of pages, filled in
matrix            the data of the page's JavaScript: laws, implementations, a verdict for each pair
violations        the texts of the page about a law that fails
environment       where a report was made: versions and machine
figures           pictures, one module each
"""
