"""Changes the HTML of a page that Sphinx made: for the keyboard, for narrow windows, and for readers
who ask which version they read.
"""

import re
import tomllib

from sources import ROOT

__all__ = ["VERSION", "finished"]

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
_HEADING = re.compile(r"<h[1-6]>.*?</h[1-6]>", re.DOTALL)
_JOINT = re.compile(r"[_.](?=\w[^<>]*<)")  # within a name, and not within a tag


def finished(body: str, changelog: str) -> str:
    """The body of a page whose scrolling blocks take the focus, and whose headings break between the
    words of a name. It ends with the version, which links to the address `changelog`.
    """
    body = body.replace("<pre>", '<pre tabindex="0">')
    body = _HEADING.sub(lambda heading: _JOINT.sub(r"\g<0><wbr>", heading[0]), body)
    return f'{body}<p class="version">attnspec {VERSION} · <a href="{changelog}">Changelog</a></p>'
