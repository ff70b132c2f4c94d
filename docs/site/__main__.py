"""Write the site's sources into a folder: `python docs/site build/docs`.

`make docs` then runs Sphinx, which makes pages from them.
"""

import shutil
import sys
from pathlib import Path

from pages import Site

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    Site().write(folder)
