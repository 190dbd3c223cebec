"""Cut the scripts into named units and keep the units they share in sync.

    python tools/sync.py list ppo                       the units of a script
    python tools/sync.py copy compute_gae               ppo.py's unit into all files that share it
    python tools/sync.py copy EnvPool.step --from ppo_atari_envpool

What is out of sync `python tools/generate.py --check` tells. A unit is a script's own, and not its
parent's, if a note explains it: a heading of docs/notes/<script>.md names it.

A unit is the PEP 723 header, the docstring, the imports, a top-level function, a class up to its
first method, a method, a banner section of `train`, another top-level statement, or the plumbing:
its line and all that follows. Comments above a definition belong to it. Units tile the file. They
are compared without the blank lines that follow them: those depend on what comes next. What takes
a source raises SyntaxError if it is not Python.
"""

import argparse
import ast
import io
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmark"))
from scripts import PROGRAMS, SCRIPTS, Script

ROOT = Path(__file__).resolve().parents[1]
PLUMBING = re.compile(r"# =+ plumbing\b")
BANNER = re.compile(r"\s+# -{3,} (\w+)\b.* -{3,}$")
FREE = ("header", "docstring")  # every script has its own: other tests look at them
# How a unit can depart from the parent's, as a sentence says it.
STATES = {
    "differs": "differs from the parent's",
    "added": "is not in the parent",
    "removed": "of the parent is missing",
}
NOTE = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """A named run of whole lines; `text` includes the blank lines that follow."""

    name: str
    first: int  # number of the first line, from 1
    text: str

    @property
    def code(self) -> str:
        """The text without the blank lines that follow: what is compared and copied."""
        return self.text.rstrip("\n")

    @property
    def gap(self) -> str:
        """The blank lines that follow."""
        return self.text[len(self.code) :]


def split_lines(source: str) -> list[str]:
    """Lines with their line ends, cut at newlines only, as Python's parser counts them."""
    return io.StringIO(source).readlines()


def cut(source: str) -> list[Unit]:
    """Units of a script in file order; their texts joined are the source."""
    lines = split_lines(source)
    marks = list(_marks(ast.parse(source), lines))
    if not marks or marks[0][0] > 1:
        marks.insert(0, (1, "header"))
    ends = [first for first, _ in marks[1:]] + [len(lines) + 1]
    units, seen = [], Counter[str]()
    for (first, name), end in zip(marks, ends, strict=True):
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name} ({seen[name]})"
        units.append(Unit(name, first, "".join(lines[first - 1 : end - 1])))
    return units


def _marks(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, str]]:
    """First line and name of each unit."""
    end, previous = 0, None
    for node in tree.body:
        first = _first_line(node, lines, end)
        plumbing = [n for n in range(end + 1, node.lineno) if PLUMBING.match(lines[n - 1])]
        if plumbing:
            yield min(first, plumbing[0]), "plumbing"
            return
        name = _name(node, lines, is_first=end == 0)
        if not (name == previous == "imports"):
            yield first, name
        if isinstance(node, ast.ClassDef):
            yield from _method_marks(node, lines)
        elif name == "train" and isinstance(node, ast.FunctionDef):
            yield from _train_marks(node, lines)
        end, previous = node.end_lineno or node.lineno, name


def _name(node: ast.stmt, lines: list[str], is_first: bool) -> str:
    match node:
        case ast.Expr(ast.Constant(str())) if is_first:
            return "docstring"
        case ast.Import() | ast.ImportFrom():
            return "imports"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return ast.unparse(target)
        case ast.If() if ast.unparse(node.test) == "__name__ == '__main__'":
            return "main guard"
    return ast.unparse(node).splitlines()[0]


def _first_line(node: ast.stmt, lines: list[str], after: int) -> int:
    """First line of a statement with its decorators and the comments above it, below `after`."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    for number in range(after + 1, first):
        text = lines[number - 1].lstrip()
        indent = len(lines[number - 1]) - len(text)
        if after and text.startswith("#") and indent <= node.col_offset:
            return number  # a deeper comment belongs to the block above
    return first


def _method_marks(node: ast.ClassDef, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Attributes between methods stay with the method above them."""
    end = node.lineno
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _first_line(item, lines, end), f"{node.name}.{item.name}"
        end = item.end_lineno or item.lineno


def _train_marks(node: ast.FunctionDef, lines: list[str]) -> Iterator[tuple[int, str]]:
    last = node.end_lineno or node.lineno
    marks = {}
    for number in range(node.body[0].lineno, last + 1):
        if banner := BANNER.match(lines[number - 1]):
            marks[number] = f"train: {banner[1]}"
    if loop := iteration_loop(node):
        first = loop.lineno
        while lines[first - 2].lstrip().startswith("#") and first - 1 not in marks:
            first -= 1
        marks[first] = "train: loop"
        rest = range((loop.end_lineno or loop.lineno) + 1, last + 1)
        indent = " " * loop.col_offset
        shallow = [
            n for n in rest if lines[n - 1].strip() and not lines[n - 1].startswith(indent + " ")
        ]
        if shallow:
            marks.setdefault(shallow[0], "train: end")
    yield from sorted(marks.items())


def iteration_loop(node: ast.AST) -> ast.For | None:
    """The `for iteration in ...` statement inside node."""
    for item in ast.walk(node):
        if isinstance(item, ast.For) and ast.unparse(item.target) == "iteration":
            return item
    return None


def by_name(source: str) -> dict[str, Unit]:
    """Units of a script under their names, in file order."""
    return {unit.name: unit for unit in cut(source)}


def body(source: str) -> tuple[int, list[str]]:
    """Number of the first line below PEP 723 header and docstring, and the lines from there on."""
    first = next((unit.first for unit in cut(source) if unit.name not in FREE), 1)
    return first, split_lines(source)[first - 1 :]


@cache
def diff_size(parent_source: str, child_source: str) -> tuple[int, int]:
    """How many lines a golden diff removes and adds."""
    a, b = body(parent_source)[1], body(child_source)[1]
    equal = sum(block.size for block in SequenceMatcher(None, a, b, False).get_matching_blocks())
    return len(a) - equal, len(b) - equal


def unit_at(source: str, line: int) -> str:
    """Name of the unit that a line, counted from 1, belongs to."""
    return [unit.name for unit in cut(source) if unit.first <= line][-1]


def golden_diff(parent: str, child: str, parent_source: str, child_source: str) -> str:
    """Unified diff of two scripts, header and docstring left out; hunks are headed by their unit.

    parent, child: names to show. Line numbers are those of the whole files.
    """
    (a_first, a), (b_first, b) = body(parent_source), body(child_source)
    out = []
    for group in SequenceMatcher(None, a, b, False).get_grouped_opcodes(3):
        # The unit of the first changed line; one that is only deleted stands in the parent alone.
        tag, i, _, k, _ = next(op for op in group if op[0] != "equal")
        if tag == "delete":
            heading = unit_at(parent_source, a_first + i)
        else:
            heading = unit_at(child_source, b_first + k)
        start, stop = group[0], group[-1]
        a_span = f"{a_first + start[1]},{stop[2] - start[1]}"
        b_span = f"{b_first + start[3]},{stop[4] - start[3]}"
        out.append(f"@@ -{a_span} +{b_span} @@ {heading}\n")
        for tag, a_start, a_end, b_start, b_end in group:
            if tag == "equal":
                out += [" " + line for line in a[a_start:a_end]]
            else:
                out += ["-" + line for line in a[a_start:a_end]]
                out += ["+" + line for line in b[b_start:b_end]]
    return "".join([f"--- ppo/{parent}\n", f"+++ ppo/{child}\n", *out])


def compare(parent_source: str, child_source: str) -> dict[str, str]:
    """Units that the child does not share with the parent: `differs`, `added` or `removed`."""
    parent, child = by_name(parent_source), by_name(child_source)
    states = {}
    for name in sorted((parent.keys() | child.keys()) - set(FREE)):
        if name not in child:
            states[name] = "removed"
        elif name not in parent:
            states[name] = "added"
        elif parent[name].code != child[name].code:
            states[name] = "differs"
    return states


def check_pair(parent_source: str, child_source: str, budget: tuple[int, int] | None) -> list[str]:
    """Problems of a child's order of units, and of the lines of its diff.

    budget: how many lines may be removed and added; None: any number.
    """
    parent, child = by_name(parent_source), by_name(child_source)
    problems = []
    if [name for name in parent if name in child] != [name for name in child if name in parent]:
        problems.append("the units it shares with its parent are in another order")
    if budget is not None:
        removed, added = diff_size(parent_source, child_source)
        if removed > budget[0] or added > budget[1]:
            problems.append(
                f"the diff to the parent is -{removed}/+{added} lines, "
                f"the budget is -{budget[0]}/+{budget[1]}: shorten it, or raise the budget in "
                "benchmark/scripts.py and say there what the lines are for"
            )
    return problems


def notes_file(child: str) -> str:
    """Where the notes on a script's own units are."""
    return f"docs/notes/{Path(child).stem}.md"


@dataclass(frozen=True)
class Collection:
    """The scripts of a checkout, the table that describes them and the notes on their units."""

    root: Path = ROOT
    family: Mapping[str, Script] = field(default_factory=lambda: SCRIPTS)
    programs: Iterable[str] = tuple(PROGRAMS)

    def path(self, script: str) -> Path:
        """Where a file of ppo/ is or would be."""
        return self.root / "ppo" / script

    def source(self, script: str) -> str:
        """Text of a file of ppo/. Raises OSError if there is none."""
        return self.path(script).read_bytes().decode()

    def files(self) -> list[str]:
        """Names of all files of ppo/, those without a row, too."""
        return sorted(path.name for path in (self.root / "ppo").glob("*.py"))

    def scripts(self) -> list[str]:
        """Scripts that exist, in the order of the table: parents before children."""
        return [name for name in self.family if self.path(name).exists()]

    def parent(self, child: str) -> str:
        """The script that `child` was derived from; ValueError if there is none."""
        row = self.family.get(child)
        if row is None or row.parent is None:
            raise ValueError(f"{child}: no script with a parent")
        return row.parent

    def children(self, parent: str) -> list[str]:
        """Scripts that were derived from `parent` directly."""
        return [name for name in self.scripts() if self.family[name].parent == parent]

    def pairs(self) -> list[tuple[str, str]]:
        """Each parent with each of its children."""
        return [(parent, child) for parent in self.scripts() for child in self.children(parent)]

    def notes(self, child: str) -> dict[str, str]:
        """The notes on a script's own units, by heading; an empty one is none."""
        path = self.root / notes_file(child)
        pieces = NOTE.split(path.read_text(encoding="utf-8"))[1:] if path.exists() else []
        notes = zip(pieces[::2], pieces[1::2], strict=True)
        return {heading: text.strip() for heading, text in notes if text.strip()}

    def own_units(self, child: str) -> dict[str, str]:
        """The units that a script does not share with its parent, with the headings that say so.

        A heading names a unit, or several with " + " between them. If it names a class that is new
        or gone, it stands for the methods as well.
        """
        own = {unit: heading for heading in self.notes(child) for unit in heading.split(" + ")}
        units = {script: by_name(self.source(script)) for script in (self.parent(child), child)}
        for unit in [name for names in units.values() for name in names]:
            owner = unit.partition(".")[0]
            if owner in own and not all(owner in names for names in units.values()):
                own.setdefault(unit, own[owner])
        return own

    def golden_diffs(self) -> dict[Path, str]:
        """Path and text that each file of docs/diffs must have."""
        diffs = {}
        for parent, child in self.pairs():
            if self.family[child].budget is not None:
                path = self.root / "docs" / "diffs" / f"{Path(child).stem}.diff"
                diffs[path] = golden_diff(parent, child, self.source(parent), self.source(child))
        return diffs

    def check(self) -> list[str]:
        """All that is out of sync, a sentence per problem.

        Order and size of a diff are looked at when no unit of the script has drifted.
        """
        known = {*self.family, *self.programs}
        unknown = [name for name in self.files() if name not in known]
        if unknown:
            return [f"ppo/{name} has no row in benchmark/scripts.py" for name in unknown]
        problems = []
        for parent, child in self.pairs():
            sources = self.source(parent), self.source(child)
            found = self.check_units(parent, child)
            found = found or check_pair(*sources, self.family[child].budget)
            problems += [f"ppo/{child}: {problem}" for problem in found]
        return problems

    def check_units(self, parent: str, child: str) -> list[str]:
        """Units that differ and have no note, notes on units that do not: a sentence for each."""
        found = compare(self.source(parent), self.source(child))
        own = self.own_units(child)
        problems = []
        for unit, state in found.items():
            if unit not in own:
                copy = f"python tools/sync.py copy {shlex.quote(unit)} --from {Path(parent).stem}"
                repair = "delete it" if state == "added" else copy
                note = f"write a note `## {unit}` in {notes_file(child)}"
                problems.append(f"`{unit}` {STATES[state]}: {repair} or {note}")
        for unit in own.keys() - found.keys():
            problems.append(f"{notes_file(child)}: `{unit}` does not differ from the parent's")
        return problems

    def unit_to_copy(self, unit: str, source: str) -> Unit:
        """A unit of a script. Raises ValueError if it has no such unit, or is not to be shared."""
        units = by_name(self.source(source))
        if unit in FREE:
            raise ValueError(f"every script has its own {unit}")
        if unit not in units:
            raise ValueError(f"ppo/{source} has no unit `{unit}`; it has: {', '.join(units)}")
        return units[unit]

    def copy(self, unit: str, source: str) -> list[str]:
        """Copy a unit of `source` into the descendants that share it; returns what happened.

        The walk stops where the unit is a script's own, and at scripts without notes. Raises
        ValueError, and changes nothing, if the source has no such unit, if every script has its
        own, or if it fits into a script nowhere.
        """
        self.unit_to_copy(unit, source)
        units = by_name(self.source(source))
        texts, own = {}, []
        queue = self.children(source)
        while queue:
            child = queue.pop(0)
            if not self.notes(child):  # a new script
                own.append(f"ppo/{child}: not touched, {notes_file(child)} is missing")
            elif unit in self.own_units(child):
                own.append(f"ppo/{child}: not touched, `{unit}` is its own")
            else:
                texts[child] = replace_unit(self.source(child), unit, list(units.values()))
                queue += self.children(child)
        report = []
        for child, text in texts.items():
            if text != self.source(child):
                self.path(child).write_bytes(text.encode())
                report.append(f"ppo/{child}: `{unit}` copied")
        return report + own


def replace_unit(source: str, name: str, parent: list[Unit]) -> str:
    """The source with the parent's unit of that name in place of its own.

    parent: all units of the parent. A unit that the source lacks goes behind the unit that precedes
    it in the parent; ValueError if the source has none of those, or if the result is misshapen.
    """
    position = next(i for i, unit in enumerate(parent) if unit.name == name)
    new = parent[position]
    units = by_name(source)
    texts = {unit.name: unit.text for unit in units.values()}
    if name in units:
        texts[name] = new.code + units[name].gap
    else:
        above = [unit.name for unit in parent[:position] if unit.name in units]
        if not above:
            raise ValueError(f"no place for `{name}`: none of the units above it is in the script")
        texts[above[-1]] += new.text
    result = "".join(texts.values())
    copied = by_name(result).get(name)
    if copied is None or copied.code != new.code:
        raise ValueError(f"`{name}` does not fit into the script: copy it by hand")
    return result


def script_name(text: str) -> str:
    """`ppo`, `ppo.py` and `ppo/ppo.py` are all ppo.py."""
    return f"{Path(text).stem}.py"


def main(argv: list[str] | None = None, collection: Collection | None = None) -> int:
    """Command line; returns the exit code: 0 fine, 2 bad input."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("list", help="units of a script")
    sub.add_argument("script", type=script_name)
    sub = commands.add_parser("copy", help="units into all scripts that share them")
    sub.add_argument("units", nargs="+", metavar="unit")
    sub.add_argument("--from", dest="source", type=script_name, default="ppo.py")
    args = parser.parse_args(argv)
    try:
        print(run(args, collection or Collection()), end="")
    except (OSError, SyntaxError, ValueError) as error:
        print(f"sync.py: {error}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace, collection: Collection) -> str:
    """Carry out a parsed command line; what to print.

    Raises OSError, SyntaxError or ValueError for bad input.
    """
    if args.command == "list":
        return "".join(f"{unit.name}\n" for unit in cut(collection.source(args.script)))
    for unit in args.units:  # before anything is written
        collection.unit_to_copy(unit, args.source)
    report = [line for unit in args.units for line in collection.copy(unit, args.source)]
    return "\n".join([*report, "then: python tools/generate.py\n"])


if __name__ == "__main__":
    sys.exit(main())
