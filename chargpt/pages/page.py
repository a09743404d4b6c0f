"""The HTML pages that the verbs write: each is one file that loads nothing and runs no script but its own.

What comes from a text, a model or a run is never markup: `escape` it into the body, or pass it as `data`, which the script of
the page reads and shows through textContent.
"""

from collections.abc import Mapping
from pathlib import Path

from chargpt.files import publish_file
from chargpt.markup import allowed, as_json, escape

SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
{data}
{script}
</body>
</html>
"""


def page(title: str, *, body: str, style: str = "", script: str = "", data: Mapping[str, object] | None = None) -> str:
    """A complete page in the common style (page.css).

    `body` is HTML; `style` is CSS for this page alone; `script` is JavaScript, which runs when the body is complete. `data` are
    values of JSON types: the script finds each as the text of the element with that id. The Content-Security-Policy names the
    hashes of the style and of the script, so that a browser runs and loads nothing else, whatever the body contains. Inline
    `style="..."` does not work therefore: use classes, or set element.style in the script.
    """
    style = source("page.css") + style
    runs = allowed(script) if script else "'none'"
    policy = f"default-src 'none'; style-src {allowed(style)}; script-src {runs}; img-src data:; base-uri 'none'; "
    return SHELL.format(
        policy=policy + "form-action 'none'",
        title=escape(title),
        style=style,
        body=body,
        data="\n".join(
            f'<script type="application/json" id="{id}">{as_json(value)}</script>' for id, value in (data or {}).items()
        ),
        script=f"<script>{script}</script>" if script else "",
    )


def source(name: str) -> str:
    """The content of a file beside this module: the style sheet, body or script of a page."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def publish_page(path: Path, content: str) -> None:
    """Write a page, whole or not at all; an older file is replaced. Raises OSError."""
    publish_file(path, content.encode("utf-8", "backslashreplace"))
