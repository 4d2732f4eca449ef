"""How Sphinx makes the pages: `make docs`."""

from html import escape

from omni_platforms import __version__
from omni_platforms.settings import SETTINGS

project = "omni-platforms"
author = copyright = "The omni-platforms authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "omni-platforms"
# The same sources make the same pages, whenever they are made.
html_last_updated_fmt = None

# Links to headings are spelled as on GitHub, so that a page reads the same there.
myst_heading_anchors = 3
myst_enable_extensions = ["substitution"]
# Blocks without a language are commands, drawings and output.
highlight_language = "text"

# Docstrings are reStructuredText in which single quotes mean code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False


def _settings_table():
    """Every environment variable as a table, from where the code reads them."""
    rows = [
        f"| `{each.name}` | {each.kind} | {each.default!r} | {escape(each.meaning)} |"
        for each in SETTINGS.values()
    ]
    return "\n".join(["| variable | kind | default | meaning |", "|---|---|---|---|", *rows])


myst_substitutions = {"settings": _settings_table()}


def _keep_colons(app, what, name, obj, options, lines):
    """Keep napoleon from reading what is before a colon as the type of an attribute.

    It looks at the first line only, which is an empty comment then.
    """
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]


def setup(app):
    """Change docstrings before napoleon does, whose priority is 500."""
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)
