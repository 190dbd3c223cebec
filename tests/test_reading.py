"""docs/read-ppo.md shows all of ppo.py beside what explains it; formulas become MathML."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ablations import Effect
from details import DETAILS
from reading import page, pages
from sync import ROOT, Collection, by_name

COLLECTION = Collection()
SOURCE = COLLECTION.source("ppo.py")
PAGE = (ROOT / "docs" / "read-ppo.md").read_text()
EXPLANATION = (ROOT / "docs" / "reading" / "ppo.md").read_text()
FENCE = re.compile(r'^``` \{ \.python linenums="(\d+)" \}\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_all_lines_are_shown_with_their_numbers():
    lines = SOURCE.splitlines()
    shown = {}
    for first, code in FENCE.findall(PAGE):
        shown |= dict(enumerate(code.splitlines(), int(first)))
    assert shown == {n: lines[n - 1] for n in shown}
    left_out = [n for n in range(1, len(lines) + 1) if n not in shown and lines[n - 1].strip()]
    assert left_out == []


def test_core_details_are_explained_beside_their_lines():
    for name in (f"core-{number}" for number in range(1, 14)):
        title = f"**[{name}](details.md#{name}): {DETAILS[name]}.** "
        assert PAGE.count(f'<div class="detail" id="{name}" markdown>\n\n{title}') == 1
        beside = FENCE.search(PAGE, PAGE.index(title))
        assert beside is not None and f"[{name}]" in beside[2]


def test_numbers_of_the_default_run_are_those_of_the_flags():
    namespace: dict[str, object] = {}
    # The annotations stay texts: their names are not needed then.
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    code = by_name(SOURCE)["Args"].code.replace("Path(__file__).stem", "'ppo'")
    exec(head + "from pathlib import Path\n" + code, namespace)
    args = namespace["Args"]()  # type: ignore[operator]
    batch, minibatches = args.batch_size, args.num_minibatches
    gradient_steps = args.update_epochs * minibatches
    weights = [(4 * 64 + 64) + (64 * 64 + 64) + (64 * outputs + outputs) for outputs in (2, 1)]
    text = " ".join(EXPLANATION.split())
    for said in (
        f"with the default flags {args.num_iterations} times",
        f"plays {args.num_steps} steps in each of {args.num_envs} environments",
        f"That makes {batch} rows",
        f"{gradient_steps} gradient steps, each on {batch // minibatches} of the rows",
        f"The {args.total_timesteps % batch} steps that are left",
        f"{args.gamma} \\cdot {args.gae_lambda} = {args.gamma * args.gae_lambda:.4f}",
        f"up to $\\rho_t = {1 + args.clip_coef}$",
        f"`ent_coef` = {args.ent_coef} and $c_1 =$ `vf_coef` = {args.vf_coef}",
        f"If its length is above {args.max_grad_norm}",
        f"has (4 × 64 + 64) + (64 × 64 + 64) + (64 × 2 + 2) = {weights[0]:,} weights",
        f"the value's {weights[1]:,}",
        f"The gradients of all {sum(weights):,} weights",
    ):
        assert said in text


# ------ a small script ------
SCRIPT = '''\
"""Title."""


def loss(x):
    y = x * x  # [core-5] generalized
    return y


def train():
    """Learns."""
    # ------ setup ------
    step = 0
    return step
'''
TEXT = """\
# Read it

<!-- map -->

<!-- unit docstring -->
## First

<!-- unit loss -->
Of `loss`.

<!-- at y = -->
## The square

[core-5] A square.

<!-- unit train -->
All.

<!-- unit train: setup -->
## Setup
"""


def test_a_page_has_a_row_for_each_part():
    text = page("ppo.py", SCRIPT, TEXT, [])
    code = [(int(first), code) for first, code in FENCE.findall(text)]
    assert [first for first, _ in code] == [1, 4, 5, 9, 11]
    assert code[2][1] == "    y = x * x  # [core-5] generalized\n    return y\n"
    assert "- 1 [First](#docstring)\n- 5 [The square](#loss)\n- 11 [Setup](#train-setup)" in text
    assert "## The square { #loss }" in text
    assert "**[core-5](details.md#core-5): generalized advantage estimation.** A square." in text


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("<!-- unit loss -->", "<!-- unit lose -->", "unit `lose` is not in the script"),
        ("<!-- unit loss -->", "<!-- unit docstring -->", "unit `docstring` is explained twice"),
        ("<!-- unit train -->\n", "", "unit `train` is not explained"),
        ("<!-- unit docstring -->", "<!-- at loss -->", "`loss` stands before the first unit"),
        ("<!-- at y = -->", "<!-- at z = -->", "`z =` is in 0 lines of unit `loss`, not in one"),
        ("<!-- at y = -->", "<!-- at x -->", "`x` is in 2 lines of unit `loss`, not in one"),
        ("<!-- at y = -->", "<!-- at def -->", "line 4 begins two parts: `def`"),
        ("[core-5] A", "A", "lines 5 to 6: [core-5] is not explained"),
        ("All.", "[core-5] All.", "lines 9 to 10: [core-5] is explained, but no tag of theirs"),
        ("Of `loss`", "Of `lost`", "line 4: `lost` is not in the script"),
    ],
)
def test_what_does_not_fit_is_told(old: str, new: str, complaint: str):
    assert TEXT.count(old) == 1
    with pytest.raises(ValueError, match=re.escape(complaint)):
        page("ppo.py", SCRIPT, TEXT.replace(old, new), [])


def test_the_file_that_does_not_fit_is_named(tmp_path: Path):
    (tmp_path / "ppo").mkdir()
    (tmp_path / "docs" / "reading").mkdir(parents=True)
    collection = Collection(tmp_path)
    collection.path("ppo.py").write_text(SCRIPT)
    assert pages(collection) == {}
    explanation = tmp_path / "docs" / "reading" / "ppo.md"
    explanation.write_text(TEXT)
    assert pages(collection) == {
        tmp_path / "docs" / "read-ppo.md": page("ppo.py", SCRIPT, TEXT, [])
    }
    explanation.write_text("# Nothing\n")
    with pytest.raises(ValueError, match=re.escape("docs/reading/ppo.md: unit `docstring` is not")):
        pages(collection)


def test_what_was_measured_ends_the_explanation():
    nan = float("nan")
    effects = [
        Effect("core-5", "CartPole-v1", 3, 1, 120, 3, 500, 20, -380, -400, -360),
        Effect("core-5", "Acrobot-v1", 0, 0, nan, 3, -84, -500, nan, nan, nan),
        Effect("core-6", "CartPole-v1", 3, 0, 490, 3, 500, 20, -10, -30, 10),
    ]
    text = page("ppo.py", SCRIPT, TEXT, effects)
    measured = text.partition("A square.\n\n")[2].partition("\n\n</div>")[0]
    assert measured.endswith(": CartPole-v1 **-380** (-400 to -360), 1 diverged.")
    assert "score without it" in text
    assert "score without it" not in page("ppo.py", SCRIPT, TEXT, [])


# ------ formulas and figures ------


def test_a_formula_becomes_mathml():
    mathml = pytest.importorskip("mathml", reason="needs the extra `docs`")
    html = r'a <span class="arithmatex">\(r &lt; \frac12\)</span>'
    block = '<div class="arithmatex">\\[\nx\n\\]</div>'
    inline, display = re.findall(r"<math.*?</math>", mathml.on_page_content(html + block))
    assert [element.text for element in ElementTree.fromstring(inline).iter() if element.text] == [
        "r",
        "<",
        "1",
        "2",
    ]
    assert 'display="inline"' in inline and 'display="block"' in display


@pytest.mark.parametrize("latex", [r"\nosuchthing x", r"a & b"])
def test_a_formula_that_is_not_understood_is_refused(latex: str):
    mathml = pytest.importorskip("mathml", reason="needs the extra `docs`")
    with pytest.raises(ValueError, match="latex2mathml"):
        mathml.to_mathml(latex)


@pytest.mark.parametrize("name", ["read-ppo.md", "ppo.md", "episode-ends.md"])
def test_no_formula_of_a_page_is_left_as_latex(name: str):
    mathml = pytest.importorskip("mathml", reason="needs the extra `docs`")
    markdown = pytest.importorskip("markdown", reason="needs the extra `docs`")
    text = (ROOT / "docs" / name).read_text()
    options = {"pymdownx.arithmatex": {"generic": True}}
    extensions = ["md_in_html", "tables", "pymdownx.superfences", *options]
    html = markdown.markdown(text, extensions=extensions, extension_configs=options)
    shown = mathml.on_page_content(html)
    assert shown.count("<math") == html.count('class="arithmatex"') >= 5
    outside_code = re.sub(r"<(pre|code)\b.*?</\1>", "", shown, flags=re.DOTALL)
    assert "arithmatex" not in shown and not re.search(r"\$|\\[a-z(\[]", outside_code)


def test_figures(tmp_path: Path):
    figures = pytest.importorskip("figures", reason="needs the extra `benchmark`")
    assert set(re.findall(r"\(reading/(\w+)\.svg\)", EXPLANATION)) == set(figures.FIGURES)
    assert figures.main(["--out", str(tmp_path)]) == 0
    for name in figures.FIGURES:
        for folder in (tmp_path, ROOT / "docs" / "reading"):
            root = ElementTree.parse(folder / f"{name}.svg").getroot()
            assert root.tag.endswith("svg")


def test_the_clipped_objective_of_the_figure():
    figures = pytest.importorskip("figures", reason="needs the extra `benchmark`")
    ratios = figures.np.array([0.5, 1.0, 1.5])
    assert figures.clipped_objective(ratios, 1.0).tolist() == [0.5, 1.0, 1.2]
    assert figures.clipped_objective(ratios, -1.0).tolist() == [-0.8, -1.0, -1.5]
