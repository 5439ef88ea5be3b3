"""Build a site that loads nothing from another host: it works offline, and no other host learns of its readers."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

FOREIGN_SHIM: Final = "https://unpkg.com/iframe-worker/shim"
"""The theme's search needs this script in a page that is opened as a file; docs/site/worker.js takes its place."""
FOREIGN: Final = re.compile(
    r'<(?:script|img|iframe)[^>]+src="https?://[^"]+"|<link[^>]+stylesheet[^>]+href="https?://[^"]+"'
)

EXAMPLES: Final = re.compile(r"\]\(((?:\.\./)*)\.\./examples/")
"""The start of a link to an example: from the repository's own folder, as it is in a checkout."""

REST_BOOST: Final = 0.2
"""How much the reference and the decisions count in a search: they repeat the words of the guides in short pages."""


def on_config(config: Any) -> Any:
    """Put the decisions, which are numbered, at the end of the navigation."""
    decisions = sorted(path.name for path in Path(config.docs_dir, "decisions").glob("*.md"))
    config.nav[-1]["Inside"].append({"Decisions": [f"decisions/{name}" for name in decisions]})
    return config


def on_files(found: Any, config: Any) -> Any:
    """Add the reference, the examples, and the library that draws diagrams, which comes from a package."""
    for name, text in _reference().pages().items():
        found.append(File.generated(config, name, content=text))
    for example in sorted(Path(config.config_file_path).with_name("examples").glob("*.py")):
        found.append(File.generated(config, f"examples/{example.name}", abs_src_path=str(example)))
    path = Path(str(files("mmdc") / "assets" / "mermaid.js"))
    found.append(File.generated(config, "site/mermaid.js", abs_src_path=str(path)))
    return found


def _reference() -> Any:
    """Return the module that makes the reference: it is beside this file, which MkDocs loads by its path."""
    spec = spec_from_file_location("mainspring_site_reference", Path(__file__).with_name("reference.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links to the examples lead to their copies in the site, and let a search find guides before the rest."""
    if page.file.src_uri.startswith(("reference/", "decisions/")):
        page.meta["search"] = {"boost": REST_BOOST}
    return EXAMPLES.sub(r"](\1examples/", markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Let a page load everything from the site."""
    return _at_home(output, "../" * page.url.count("/"))


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Let the page for wrong addresses load everything from the site, too."""
    return _at_home(output, "/")


def _at_home(output: str, up: str) -> str:
    """Return a page that loads our shim; end the build if the page still loads something from another host."""
    output = output.replace(FOREIGN_SHIM, f"{up}site/worker.js")
    if foreign := FOREIGN.search(output):
        raise PluginError(
            f"the site would load something from another host: {foreign[0]}; see docs/decisions/024-site.md"
        )
    return output
