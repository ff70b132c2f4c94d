"""Shows reports, laws and known bugs to people: in a terminal, as a page, and in other forms."""
