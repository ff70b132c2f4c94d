"""Sphinx's settings: a static site that opens from disk, has MathML, and loads nothing from a
network.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from markup import VERSION, finished

project = "attnspec"
version = release = VERSION
copyright = "the authors of attnspec, MIT licence"
extensions = ["myst_parser", "mathml"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3  # like GitHub's, so links inside generated pages work in both places
html_math_renderer = "mathml"

nitpicky = True
smartquotes = False  # quoted text is often code
html_theme = "furo"
html_title = f"attnspec {VERSION}"
html_static_path = ["static", *(str(Path(p) / "fonts") for p in find_spec("ziamath").submodule_search_locations)]
html_css_files = ["site.css"]
html_js_files = [("tables.js", {"defer": "defer"})]
html_extra_path = ["served"]  # the page that a server sends for a missing address
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # the script would fetch it, and a page from disk may not fetch
html_use_index = False


def setup(app: Any) -> None:
    """Finish the body of each page, and give the sidebar's headings their level."""
    app.connect("html-page-context", _finish, priority=900)  # after the theme's own


def _finish(app: Any, name: str, template: str, context: dict[str, Any], document: Any) -> None:
    context["body"] = finished(context.get("body", ""), context["pathto"]("changelog"))
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
