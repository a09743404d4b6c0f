"""The HTML pages that the verbs write: each is one file that loads nothing and runs no script but its own.

A page is a template (*.html.j2) and the values that it shows. What comes from a text, a model or a run is never markup: every
value of a template becomes visible and is escaped, unless it is Markup, which only our own charts, templates and sources are.
Or it is passed as `data`, which the script of the page reads and shows through textContent.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from chargpt.files import publish_file
from chargpt.markup import allowed, as_json, visible

if TYPE_CHECKING:
    from jinja2 import Environment

LEVELS = (0.5, 1, 2, 3, 4, 6, 8, 10)  # bits at which a deeper level of surprise begins: n bits are a probability of 1 / 2^n


def page(
    title: str,
    *,
    body: Markup,
    style: str = "",
    script: str = "",
    data: Mapping[str, object] | None = None,
    refresh: int = 0,
) -> str:
    """A complete page in the common style (base.css), which a browser reads again every `refresh` seconds; 0: never.

    `style` is CSS for this page alone; `script` is JavaScript, which runs when the body is complete. `data` are values of JSON
    types: the script finds each as the text of the element with that id. The Content-Security-Policy names the hashes of the
    style and of the script, so that a browser runs and loads nothing else, whatever the body contains. Inline `style="..."`
    does not work therefore: use classes, or set element.style in the script.
    """
    style = source("base.css") + style
    runs = allowed(script) if script else "'none'"
    only = f"style-src {allowed(style)}; script-src {runs}; img-src data:"
    policy = f"default-src 'none'; {only}; base-uri 'none'; form-action 'none'"
    content = render(
        "base.html.j2",
        policy=Markup(policy),
        title=title,
        refresh=refresh,
        style=Markup(style),
        body=body,
        data={name: Markup(as_json(value)) for name, value in (data or {}).items()},
        script=Markup(script),
    )
    return str(content)  # Markup would escape whatever is added to it


def render(template: str, **values: object) -> Markup:
    """A template beside this module with `values`, each of them visible and escaped. A missing value raises an error."""
    return Markup(_environment().get_template(template).render(values))


@functools.cache
def _environment() -> "Environment":
    """Every value passes through `visible`, so that no template can forget it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # train.py imports this module, and starts quickly

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def stretches(bits: np.ndarray) -> list[tuple[int, int, int]]:
    """The stretches of characters of one level of surprise: the level, the first character, and the one after the last.

    Levels are 0 to len(LEVELS); -1 is a character that was not predicted, nan in `bits`.
    """
    if not len(bits):
        return []
    levels = np.where(np.isnan(bits), -1, np.searchsorted(LEVELS, np.nan_to_num(bits), side="right"))
    starts = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist()]
    return list(zip(levels[starts].tolist(), starts, [*starts[1:], len(levels)]))


def source(name: str) -> str:
    """The content of a file beside this module: the style sheet or the script of a page."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def publish_page(path: Path, content: str) -> None:
    """Write a page, whole or not at all; an older file is replaced. Raises OSError."""
    publish_file(path, content.encode("utf-8", "backslashreplace"))
