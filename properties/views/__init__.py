"""What people read: a report in a terminal, as a page and in other forms, and listings of laws and bugs."""
