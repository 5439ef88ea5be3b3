"""The style sheet and the scripts. Each name contains a hash of the content, so browsers may keep the file forever."""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["StaticFile", "static_files", "static_path"]

FOLDER: Final = Path(__file__).parents[1] / "static"
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_IMPORT: Final = re.compile(r'(?<=from "\./)[\w-]+\.js(?=")')


class StaticFile(NamedTuple):
    """A file, ready to send."""

    path: str
    content: bytes
    packed: bytes
    type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by their names without hashes."""
    found: dict[str, StaticFile] = {}

    def load(name: str) -> StaticFile:
        if name not in found:
            file = FOLDER / name
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".js":  # a script also imports other scripts by their hashed names
                text = _IMPORT.sub(lambda match: Path(load(match[0]).path).name, text)
            content = text.encode()
            hashed = hashlib.sha256(content).hexdigest()[:12]
            path = f"/static/{file.stem}.{hashed}{file.suffix}"
            found[name] = StaticFile(path, content, gzip.compress(content, mtime=0), _TYPES[file.suffix])
        return found[name]

    for file in sorted(FOLDER.iterdir()):
        if file.suffix in _TYPES:
            load(file.name)
    return found


def static_path(name: str) -> str:
    """Return the path of a file, below the root."""
    return static_files()[name].path
