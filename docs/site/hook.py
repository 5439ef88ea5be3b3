"""Give the site what the theme would load from other hosts, so that it works offline and tells nobody who reads it."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File

FOREIGN_SHIM: Final = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')
"""What the theme's search needs in a page that is opened as a file; docs/site/worker.js does it here."""


def on_config(config: Any) -> Any:
    """Put the decisions, which are numbered, at the end of the navigation."""
    decisions = sorted(path.name for path in Path(config.docs_dir, "decisions").glob("*.md"))
    config.nav[-1]["Inside"].append({"Decisions": [f"decisions/{name}" for name in decisions]})
    return config


def on_files(found: Any, config: Any) -> Any:
    """Add the examples, and the library that draws diagrams, which comes from a package."""
    for example in sorted(Path(config.config_file_path).with_name("examples").glob("*.py")):
        found.append(File.generated(config, f"examples/{example.name}", abs_src_path=str(example)))
    path = Path(str(files("mmdc") / "assets" / "mermaid.js"))
    found.append(File.generated(config, "site/mermaid.js", abs_src_path=str(path)))
    return found


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links to the examples, which are beside docs/ in the repository, lead to their copies in the site."""
    return markdown.replace("](../examples/", "](examples/").replace("](../../examples/", "](../examples/")


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load the shim from here."""
    up = "../" * page.url.count("/")
    return FOREIGN_SHIM.sub(f'<script src="{up}site/worker.js"></script>', output)


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Load the shim from here in the page that is shown for a wrong address, too."""
    return FOREIGN_SHIM.sub('<script src="/site/worker.js"></script>', output)
