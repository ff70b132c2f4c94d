"""What is under test: its operations, what it promises, conversion of arrays, and how a law sees it."""
