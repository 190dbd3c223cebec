"""The pages build, their links lead somewhere, and they say what the scripts do."""

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import insertions
import numpy as np
import pytest
from helpers.in_process import load_script
from sync import ROOT, Collection

COLLECTION = Collection()
README = (ROOT / "README.md").read_text()
# Markdown links and images, and those of HTML.
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


class Page(HTMLParser):
    """Links and anchors of a built page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """Links between the pages that lead to no file, or to no anchor of a page."""
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) >= 8
    broken = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            missing_anchor = (
                url.fragment
                and target in pages
                and unquote(url.fragment) not in pages[target].anchors
            )
            if not target.exists() or missing_anchor:
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Tags of the pages that would make a browser load something from another host."""
    tag = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^\s>]+")
    return [
        f"{p.name}: {found}" for p in site.rglob("*.html") for found in tag.findall(p.read_text())
    ]


@pytest.mark.slow("the site")
def test_the_built_pages(tmp_path: Path):
    """One test, so that the pages are built once: their links, what they load, results."""
    if importlib.util.find_spec("material") is None:
        pytest.skip("needs the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert broken_links(tmp_path) == []
    assert loaded_from_elsewhere(tmp_path) == []
    left = re.compile(r"--8 ?(?:<|&lt;)|<!-- insert|arithmatex")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        plain = re.sub(r"</?span[^>]*>", "", text)  # colored code
        assert left.findall(text) + left.findall(plain) == [], page.name


def test_links_of_the_readme_exist():
    links = [a or b for a, b in LINK.findall(README)]
    local = [urlsplit(link) for link in links if not urlsplit(link).scheme]
    assert len(local) > 5
    assert [url.path for url in local if not (ROOT / url.path).exists()] == []
    for url in local:
        if url.fragment:
            headings = re.findall(
                r"^#+ (.*)$", (ROOT / (url.path or "README.md")).read_text(), re.M
            )
            slugs = [re.sub(r"[^\w]+", "-", heading.lower()).strip("-") for heading in headings]
            assert url.fragment in slugs, f"{url.path}#{url.fragment}"


def test_the_readmes_test_command_is_what_ci_runs():
    commands = re.findall(r"^(uv run .*?pytest)\b", README, re.MULTILINE)
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("script", COLLECTION.scripts())
def test_every_metric_is_explained(script: str):
    metrics = set(re.findall(r'"((?:charts|losses|eval)/\w+)"', COLLECTION.source(script)))
    assert len(metrics) > 10
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert [metric for metric in sorted(metrics) if f"| `{metric}` |" not in text] == []


def test_flags_of_a_script_are_those_that_differ_from_its_parents():
    ours = "class Args:\n    # the task\n    seed: int = 1  # of all\n    envs: int = 4  # many\n"
    child = ours.replace("int = 4", "int = 8") + "    lstm: bool = True  # remember\n"
    shown = insertions.flags_section(child, "ppo.py", ours)
    assert "| `--envs` | `8` | many |\n| `--lstm` | on | remember |" in shown
    assert "--seed" not in shown and "The other 1 flags are those of `ppo.py`" in shown
    shown = insertions.flags_section(ours, "ppo.py", ours)
    assert shown == "All 2 are those of `ppo.py`, with the same defaults."
    assert "--seed" in insertions.flags_section(ours, "", "")


def test_the_example_of_episode_ends_is_right():
    text = (ROOT / "docs" / "episode-ends.md").read_text()
    rows = re.findall(r"^\| \d \|[^|]*\|((?:[^|\n]+\|){7})$", text, re.MULTILINE)
    cells = [[float(cell.strip(" *")) for cell in row.split("|")[:-1]] for row in rows]
    assert len(cells) == 5
    table = np.array(cells).T[..., None]
    rewards, values, next_values, terminated, truncated, deltas, advantages = table
    terminated, truncated = terminated.astype(bool), truncated.astype(bool)
    assert np.array_equal(next_values[:-1][~truncated[:-1]], values[1:][~truncated[:-1]])

    compute_gae = load_script("ppo.py").compute_gae
    for gae_lambda, expected in ((0.5, advantages), (0.0, deltas)):
        args = SimpleNamespace(gamma=0.9, gae_lambda=gae_lambda)
        found, _ = compute_gae(rewards, values, next_values, terminated, truncated, args)
        np.testing.assert_allclose(found, expected, atol=1e-9)
