"""`python -m properties` is the command `attnspec`."""

import sys

from properties.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
