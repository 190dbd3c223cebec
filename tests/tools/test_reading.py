"""read-ppo.md shows all of ppo.py beside what explains it."""

import re

from annotated import read_ppo
from sync import Collection

FENCE = re.compile(r'^``` \{ \.python linenums="(\d+)" \}\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_all_lines_are_shown_with_their_numbers():
    collection = Collection()
    lines = collection.source("ppo.py").splitlines()
    text = (collection.root / "docs" / "read-ppo.md").read_text()
    shown = {}
    for first, code in FENCE.findall(read_ppo(collection, text)):
        shown |= dict(enumerate(code.splitlines(), int(first)))
    assert shown == {n: lines[n - 1] for n in shown}
    left_out = [n for n in range(1, len(lines) + 1) if n not in shown and lines[n - 1].strip()]
    assert left_out == []
