"""Cut the scripts into named units and keep the units they share in sync.

    python tools/sync.py list ppo                   the units of a script
    python tools/sync.py diff ppo ppo_atari         two scripts, unit by unit
    python tools/sync.py copy compute_gae           ppo.py's unit into all files that share it
    python tools/sync.py row ppo_atari              the row of family.py that describes the script
    python tools/sync.py write-diffs                regenerate docs/diffs/
    python tools/sync.py check                      everything test_sync.py checks

A unit is the PEP 723 header, the docstring, the imports, a top-level function, a class up to its
first method, a method, a banner section of `train`, another top-level statement, or the plumbing:
its line and all that follows. Comments above a definition belong to it. Units tile the file. They
are compared without the blank lines that follow them: those depend on what comes next.
"""

import argparse
import ast
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from family import BANNERS, FAMILY, PROGRAMS, Script

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
PLUMBING = re.compile(r"# =+ plumbing\b")
BANNER = re.compile(r"\s+# -{3,} (\w+)\b.* -{3,}$")
OWN = ("header", "docstring")  # differ freely: other tests look at them


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
        return self.text[len(self.code) :]


def split_lines(source: str) -> list[str]:
    """Lines with their line ends, cut at newlines only, as Python's parser counts them."""
    return io.StringIO(source).readlines()


def cut(source: str) -> list[Unit]:
    """Units of a script in file order; their texts joined are the source.

    Raises SyntaxError for a source that is not Python.
    """
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
    return lines[node.lineno - 1].strip()


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


def line_changes(a: list[str], b: list[str]) -> tuple[int, int]:
    """How many lines of a are gone and how many of b are new in their diff."""
    changes = [op for op in SequenceMatcher(None, a, b, False).get_opcodes() if op[0] != "equal"]
    return sum(j - i for _, i, j, _, _ in changes), sum(j - i for _, _, _, i, j in changes)


def body(source: str) -> tuple[int, list[str]]:
    """Number of the first line below PEP 723 header and docstring, and the lines from there on."""
    first = next((unit.first for unit in cut(source) if unit.name not in OWN), 1)
    return first, split_lines(source)[first - 1 :]


def golden_diff(parent: str, child: str, parent_source: str, child_source: str) -> str:
    """Unified diff of two scripts, header and docstring left out; hunks are headed by their unit.

    parent, child: names to show. Line numbers are those of the whole files.
    """
    (a_first, a), (b_first, b) = body(parent_source), body(child_source)
    a_units, b_units = cut(parent_source), cut(child_source)
    out = []
    for group in SequenceMatcher(None, a, b, False).get_grouped_opcodes(3):
        tag, i, _, k, l_end = next(op for op in group if op[0] != "equal")
        side = (b_units, b_first + k) if l_end > k else (a_units, a_first + i)
        heading = [unit.name for unit in side[0] if unit.first <= side[1]][-1]
        start, stop = group[0], group[-1]
        a_span = f"{a_first + start[1]},{stop[2] - start[1]}"
        b_span = f"{b_first + start[3]},{stop[4] - start[3]}"
        out.append(f"@@ -{a_span} +{b_span} @@ {heading}\n")
        for tag, i, j, k, l_end in group:
            if tag == "equal":
                out += [" " + line for line in a[i:j]]
                continue
            out += ["-" + line for line in a[i:j]]
            out += ["+" + line for line in b[k:l_end]]
    return "".join([f"--- ppo/{parent}\n", f"+++ ppo/{child}\n", *out])


def compare(parent_source: str, child_source: str) -> tuple[set[str], set[str], set[str]]:
    """Names of the units that differ, that only the child has, and that only the parent has."""
    a, b = by_name(parent_source), by_name(child_source)
    differs = {n for n in a.keys() & b.keys() if a[n].code != b[n].code}
    return differs - set(OWN), b.keys() - a.keys() - set(OWN), a.keys() - b.keys() - set(OWN)


def check_pair(parent_source: str, child_source: str, row: Script) -> list[str]:
    """What contradicts the child's row in the table, one sentence per problem."""
    differs, added, removed = compare(parent_source, child_source)
    declared = row.differs or frozenset()
    problems: list[str] = []

    def report(units: Iterable[str], text: str) -> None:
        problems.extend(f"`{unit}` {text}" for unit in sorted(units))

    report(differs - declared, "drifted from the parent's and is not declared to differ")
    report(declared - differs, "is declared to differ but does not (equal, or not in both files)")
    report(removed - row.removes, "of the parent is missing (renamed?)")
    report(added - row.adds, "is not in the parent and not declared as added (renamed?)")
    report(row.adds - added, "is declared as added but is not a new unit")
    report(row.removes - removed, "is declared as removed but is not")
    a, b = by_name(parent_source), by_name(child_source)
    if [n for n in a if n in b] != [n for n in b if n in a]:
        problems.append("the units it shares with its parent are in another order")
    if row.budget is not None:
        counts = line_changes(body(parent_source)[1], body(child_source)[1])
        if counts[0] > row.budget[0] or counts[1] > row.budget[1]:
            problems.append(
                f"the diff to the parent is -{counts[0]}/+{counts[1]} lines, "
                f"the budget is -{row.budget[0]}/+{row.budget[1]}"
            )
    return problems


def check_anatomy(source: str, row: Script) -> list[str]:
    """Banners and plumbing line in order; the line limits of the row."""
    names = [unit.name for unit in cut(source)]
    problems = []
    wanted = ["train", *(f"train: {banner}" for banner in BANNERS), "plumbing"]
    wanted.insert(wanted.index("train: rollout"), "train: loop")
    if [name for name in names if name in wanted] != wanted:
        found = [name for name in names if name in wanted]
        problems.append(f"the anatomy is {found}, it must be {wanted}")
    if row.limits is not None and not problems:
        above = "".join(unit.text for unit in cut(source) if unit.name != "plumbing")
        written = sum(bool(line.strip()) for line in split_lines(above))
        loop = iteration_loop(ast.parse(source))
        assert loop is not None, "the anatomy has a loop"
        counts = {
            "written lines above the plumbing": (written, row.limits.above_plumbing),
            "lines in the loop body": ((loop.end_lineno or 0) - loop.lineno, row.limits.loop),
        }
        problems += [
            f"{n} {what}, at most {most}" for what, (n, most) in counts.items() if n > most
        ]
    return problems


def check_file(source: str, siblings: Iterable[str]) -> list[str]:
    """Line width, and imports of the other files of the folder.

    siblings: file names whose modules must not be imported.
    """
    wide = [n for n, line in enumerate(split_lines(source), 1) if len(line.rstrip("\n")) > WIDTH]
    problems = [f"line {n} is over {WIDTH} columns" for n in wide]
    modules = {Path(name).stem for name in siblings}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                imported = {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=module, level=level):
                imported = modules if level else {(module or "").partition(".")[0]}
            case _:
                continue
        if imported & modules:
            problems.append(f"line {node.lineno} imports another script; scripts stand alone")
    return problems


@dataclass(frozen=True)
class Collection:
    """The scripts of a checkout and the table that describes them."""

    root: Path = ROOT
    family: Mapping[str, Script] = field(default_factory=lambda: FAMILY)
    programs: Iterable[str] = tuple(PROGRAMS)

    def path(self, script: str) -> Path:
        return self.root / "ppo" / script

    def source(self, script: str) -> str:
        return self.path(script).read_bytes().decode()

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.root / "ppo").glob("*.py"))

    def scripts(self) -> list[str]:
        """Scripts that exist, in the order of the table: parents before children."""
        return [name for name in self.family if self.path(name).exists()]

    def children(self, parent: str) -> list[str]:
        return [name for name in self.scripts() if self.family[name].parent == parent]

    def golden_diffs(self) -> dict[Path, str]:
        """Path and text that each file of docs/diffs must have."""
        diffs = {}
        for child in self.scripts():
            parent = self.family[child].parent
            if parent and self.path(parent).exists() and self.family[child].budget is not None:
                path = self.root / "docs" / "diffs" / f"{Path(child).stem}.diff"
                diffs[path] = golden_diff(parent, child, self.source(parent), self.source(child))
        return diffs

    def write_diffs(self) -> list[Path]:
        """Bring docs/diffs up to date; returns the files that were written or deleted."""
        wanted, changed = self.golden_diffs(), []
        for path in (self.root / "docs" / "diffs").glob("*.diff"):
            if path not in wanted:
                path.unlink()
                changed.append(path)
        for path, text in wanted.items():
            if not path.exists() or path.read_bytes().decode() != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
                changed.append(path)
        return changed

    def check_table(self) -> list[str]:
        """Every file of ppo/ has a complete row (or is a declared program), and its parent."""
        problems = []
        for name in self.files():
            if name in self.programs:
                continue
            row = self.family.get(name)
            if row is None or row.differs is None:
                state = "no" if row is None else "an incomplete"
                problems.append(f"ppo/{name} has {state} row in tools/family.py")
            elif row.parent and not self.path(row.parent).exists():
                problems.append(f"ppo/{name}: its parent {row.parent} does not exist")
        return problems

    def check_script(self, name: str) -> list[str]:
        """Everything about one script or program but its row's completeness."""
        problems = check_file(self.source(name), self.files())
        row = self.family.get(name)
        if row is not None:
            problems += check_anatomy(self.source(name), row)
            if row.differs is not None and row.parent and self.path(row.parent).exists():
                problems += check_pair(self.source(row.parent), self.source(name), row)
        return [f"ppo/{name}: {problem}" for problem in problems]

    def check_diffs(self) -> list[str]:
        """Golden diffs that are stale, missing or left over."""
        wanted, folder = self.golden_diffs(), self.root / "docs" / "diffs"
        here = {path: path.read_bytes().decode() for path in folder.glob("*.diff")}
        stale = sorted(p.name for p in wanted.keys() | here.keys() if wanted.get(p) != here.get(p))
        return [f"docs/diffs/{name} is stale: python tools/sync.py write-diffs" for name in stale]

    def check(self) -> list[str]:
        """All problems of the collection."""
        each = [problem for name in self.files() for problem in self.check_script(name)]
        return self.check_table() + each + self.check_diffs()

    def copy(self, unit: str, source: str, to: Iterable[str] | None = None) -> list[str]:
        """Copy a unit of `source` into the descendants that share it; returns what happened.

        The walk stops where a script declares the unit as its own, and at scripts without a
        complete row. to: the only scripts to change; naming one that must not share the unit raises
        ValueError, as does a unit that the source does not have.
        """
        units = by_name(self.source(source))
        if unit in OWN:
            raise ValueError(f"every script has its own {unit}")
        if unit not in units:
            raise ValueError(f"ppo/{source} has no unit `{unit}`; it has: {', '.join(units)}")
        chosen = None if to is None else set(to)
        own, sharing, report = [], [], []
        queue = self.children(source)
        while queue:
            child = queue.pop(0)
            row = self.family[child]
            if row.may_differ(unit):
                own.append(f"ppo/{child}: not touched, `{unit}` is its own")
            elif row.differs is None and child not in (chosen or ()):
                own.append(f"ppo/{child}: not touched, its row in tools/family.py is incomplete")
            else:
                sharing.append(child)
                queue += self.children(child)
        if refused := sorted((chosen or set()) - set(sharing)):
            raise ValueError(f"`{unit}` of {source} is not shared by {', '.join(refused)}")
        for child in sharing:
            if chosen is None or child in chosen:
                old = self.source(child)
                new = replace_unit(old, unit, list(units.values()))
                if new != old:
                    self.path(child).write_bytes(new.encode())
                state = "copied" if new != old else "already equal"
                report.append(f"ppo/{child}: `{unit}` {state}")
        return report + (own if chosen is None else [])


def replace_unit(source: str, name: str, parent: list[Unit]) -> str:
    """The source with the parent's unit of that name in place of its own.

    parent: all units of the parent. A unit that the source lacks goes behind the unit that precedes
    it in the parent; ValueError if the source has none of those, or if the result is misshapen.
    """
    position = next(i for i, unit in enumerate(parent) if unit.name == name)
    new = parent[position]
    units = cut(source)
    names = [unit.name for unit in units]
    if name in names:
        texts = [new.code + unit.gap if unit.name == name else unit.text for unit in units]
    else:
        before = next((u for u in reversed(parent[:position]) if u.name in names), None)
        if before is None:
            raise ValueError(f"no place for `{name}`: none of the units above it is in the script")
        texts = []
        for unit in units:
            if unit.name == before.name:
                texts += [unit.code + before.gap, new.code + unit.gap]
            else:
                texts.append(unit.text)
    result = "".join(texts)
    if (copied := by_name(result).get(name)) is None or copied.code != new.code:
        raise ValueError(f"`{name}` does not fit into the script: copy it by hand")
    return result


def script_name(text: str) -> str:
    """`ppo`, `ppo.py` and `ppo/ppo.py` are all ppo.py."""
    return f"{Path(text).stem}.py"


def show_diff(collection: Collection, parent: str, child: str) -> str:
    """Both scripts unit by unit: `=` equal, `~` different, `+` only child, `-` only parent."""
    a, b = by_name(collection.source(parent)), by_name(collection.source(child))
    row = collection.family.get(child)
    known = row is not None and row.differs is not None and row.parent == parent
    order = list(b)
    for name in a:  # a unit that the child lacks is shown behind the one above it
        if name not in b:
            above = list(a)[: list(a).index(name)]
            order.insert(max([order.index(n) + 1 for n in above if n in order], default=0), name)
    out, total = [], [0, 0]
    for name in order:
        old = split_lines(a[name].code + "\n") if name in a else []
        new = split_lines(b[name].code + "\n") if name in b else []
        if old == new:
            out.append(f"= {name}\n")
            continue
        removed, added = line_changes(old, new)
        if name not in OWN:
            total = [total[0] + removed, total[1] + added]
        sign = "~" if old and new else "+" if new else "-"
        undeclared = known and name not in OWN and row is not None and not row.may_differ(name)
        out.append(f"{sign} {name} -{removed}/+{added}{'  UNDECLARED' if undeclared else ''}\n")
        for tag, i, j, k, m in SequenceMatcher(None, old, new, False).get_opcodes():
            if tag != "equal":
                out += [f"    -{line}" for line in old[i:j]] + [f"    +{line}" for line in new[k:m]]
    lines = line_changes(body(collection.source(parent))[1], body(collection.source(child))[1])
    budget = f", budget -{row.budget[0]}/+{row.budget[1]}" if known and row and row.budget else ""
    out.append(f"file by file, without header and docstring: -{lines[0]}/+{lines[1]}{budget}\n")
    return "".join(out)


def main(argv: list[str] | None = None, collection: Collection | None = None) -> int:
    """Command line; returns the exit code: 0 fine, 1 problems found, 2 bad input."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("list", help="units of a script")
    sub.add_argument("script", type=script_name)
    sub = commands.add_parser("diff", help="two scripts, unit by unit")
    sub.add_argument("parent", type=script_name)
    sub.add_argument("child", type=script_name)
    sub = commands.add_parser("copy", help="a unit into all scripts that share it")
    sub.add_argument("units", nargs="*", metavar="unit")
    sub.add_argument("--all", action="store_true", help="every unit")
    sub.add_argument("--from", dest="source", type=script_name, default="ppo.py")
    sub.add_argument("--to", nargs="+", type=script_name, help="only these scripts")
    sub = commands.add_parser("row", help="the row of tools/family.py that describes the script")
    sub.add_argument("script", type=script_name)
    commands.add_parser("write-diffs", help="regenerate docs/diffs")
    commands.add_parser("check", help="report all problems; exit code 1 if there are any")
    args = parser.parse_args(argv)
    collection = collection or Collection()
    try:
        return run(args, collection)
    except (OSError, SyntaxError, ValueError) as error:
        print(f"units.py: {error}", file=sys.stderr)
        return 2


def run(args: argparse.Namespace, collection: Collection) -> int:
    """Carry out a parsed command line; OSError, SyntaxError and ValueError are bad input."""
    match args.command:
        case "list":
            for unit in cut(collection.source(args.script)):
                last = unit.first + unit.code.count("\n")
                print(f"{unit.first:4}-{last:<4} {last - unit.first + 1:4} lines  {unit.name}")
        case "diff":
            print(show_diff(collection, args.parent, args.child), end="")
        case "copy":
            if bool(args.units) == args.all:
                raise ValueError("name the units to copy, or say --all")
            names = [n for n in by_name(collection.source(args.source)) if n not in OWN]
            for name in names if args.all else args.units:
                for line in collection.copy(name, args.source, args.to):
                    if not args.all or line.endswith("copied"):
                        print(line)
            print("then: python tools/sync.py write-diffs && python tools/details.py")
        case "row":
            row = collection.family.get(args.script)
            if row is None or row.parent is None:
                raise ValueError(f"tools/family.py names no parent of {args.script}")
            sources = collection.source(row.parent), collection.source(args.script)
            for label, found in zip(("differs", "adds", "removes"), compare(*sources), strict=True):
                print(f"{label}=frozenset({sorted(found) or ''}),".replace("'", '"'))
        case "write-diffs":
            for path in collection.write_diffs():
                print(path.relative_to(collection.root))
        case "check":
            problems = collection.check()
            print("\n".join(problems) or "in sync")
            return int(bool(problems))
    return 0


if __name__ == "__main__":
    sys.exit(main())
