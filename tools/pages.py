"""Hook of mkdocs.yml: what is made of scripts and results is made when the site is built.

There are pages of which no file is in docs/: source/<script>.md, a script with the numbers of its
lines, and read-<script>.md (annotated.py). On all pages insertions are made (insertions.py).
"""

from typing import Any

import annotated
import insertions
from details import source_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from sync import Collection


def made_pages(collection: Collection) -> dict[str, str]:
    """Name in docs/ and text of each page that has no file.

    Raises ValueError if scripts, notes and explanations do not fit each other.
    """
    if problems := collection.check():
        raise ValueError("\n".join(problems))
    sources = {f"source/{script[:-3]}.md": source_page(script) for script in collection.scripts()}
    return sources | annotated.pages(collection)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that have no file."""
    try:
        for name, text in made_pages(Collection()).items():
            files.append(File.generated(config, name, content=text))
    except (OSError, ValueError) as error:
        raise PluginError(str(error)) from error
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page with all that is to be inserted."""
    try:
        return insertions.insert(Collection(), markdown)
    except ValueError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error
