"""What people read: a report in a terminal and as a page, and listings of laws and bugs."""
