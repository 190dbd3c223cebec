"""Hook of mkdocs.yml: what is made of scripts and results is made when the site is built.

There are pages of which no file is in docs/: source/<script>.md, a script with the numbers of its
lines. read-ppo.md gets the code that it explains (annotated.py), all pages their insertions
(insertions.py).
"""

import re
from typing import Any

import annotated
import insertions
from details import source_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from sync import Collection

SOURCE_LINK = re.compile(r"\]\(\.\./ppo/(\w+)\.py\)")  # works in a file viewer, too


def made_pages(collection: Collection) -> dict[str, str]:
    """Name in docs/ and text of each page that has no file.

    Raises ValueError if scripts and notes do not fit each other.
    """
    if problems := collection.check():
        raise ValueError("\n".join(problems))
    return {f"source/{script[:-3]}.md": source_page(script) for script in collection.scripts()}


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
    collection = Collection()
    try:
        if page.file.src_uri == annotated.PAGE:
            markdown = annotated.read_ppo(collection, markdown)
        return SOURCE_LINK.sub(r"](source/\1.md)", insertions.insert(collection, markdown))
    except ValueError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error
