"""What pyproject.toml and the scripts' PEP 723 headers declare."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def header(path: str) -> dict[str, Any]:
    """The script's metadata, read as PEP 723 says; ValueError unless there is exactly one block."""
    pattern = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
    source = (ROOT / path).read_text()
    blocks = [m for m in re.finditer(pattern, source) if m["type"] == "script"]
    if len(blocks) != 1:
        raise ValueError(f"{path} has {len(blocks)} PEP 723 blocks")
    lines = blocks[0]["content"].splitlines()
    return tomllib.loads("\n".join(line[2:] for line in lines))
