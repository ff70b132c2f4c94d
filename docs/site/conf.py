"""Sphinx's settings: a static site that opens from disk, with mathematics as MathML and nothing from a network."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "attnspec"
copyright = "the authors of attnspec, MIT licence"
extensions = ["myst_parser", "mathml"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = "mathml"

nitpicky = True
smartquotes = False  # what is quoted is often code
html_theme = "furo"
html_title = "attnspec"
html_static_path = ["static", *(str(Path(p) / "fonts") for p in find_spec("ziamath").submodule_search_locations)]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # a summary is fetched, which a page from disk may not do
html_use_index = False
pygments_style = "tango"
pygments_dark_style = "github-dark"
