"""Fetch the libraries of `systems.native`, all or those that are named."""

import argparse

from systems.native.recipes import LIBRARIES, fetch

parser = argparse.ArgumentParser(prog="python -m systems.native", description=__doc__)
parser.add_argument("libraries", nargs="*", choices=[*LIBRARIES, []], metavar="LIBRARY", help=", ".join(LIBRARIES))
for library in parser.parse_args().libraries or LIBRARIES:
    fetch(library)
