"""The figures of what each agent sees: all are there, on their pages, and small."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sync import ROOT, Collection

observations = pytest.importorskip("observations", reason="needs the extra `benchmark`")
np, plt = observations.np, observations.plt

FOLDER = ROOT / "docs" / "observations"
SCRIPTS = [Path(script).stem for script in Collection().scripts()]
KILOBYTES = 1000


def test_every_script_has_its_figure_and_no_other_is_left():
    assert set(observations.DRAW) == set(SCRIPTS)
    assert sorted(path.stem for path in FOLDER.glob("*.svg")) == sorted(SCRIPTS)


@pytest.mark.parametrize("stem", SCRIPTS)
def test_a_page_shows_the_figure_of_its_script(stem: str):
    page = (ROOT / "docs" / f"{stem}.md").read_text()
    shown = re.findall(r"^!\[([^\]]+)\]\(observations/(\w+)\.svg\)$", page, re.MULTILINE)
    assert [name for _, name in shown] == [stem]
    assert len(shown[0][0]) > 30  # what those read who do not see it
    assert page.index("observations/") < page.index("```bash")
    ElementTree.parse(FOLDER / f"{stem}.svg")


def test_figures_are_small():
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.svg")}
    assert {name: size for name, size in sizes.items() if size > 60 * KILOBYTES} == {}
    assert sum(sizes.values()) < 600 * KILOBYTES


@pytest.mark.slow("CartPole, drawn")
def test_a_figure_is_drawn_from_the_environment(tmp_path: Path):
    assert observations.main(["ppo", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "ppo.svg").read_text()
    assert "angle of the pole" in text and "data:image/png" in text
    assert text.count("<text") == 10  # two titles, four names, four numbers


def test_numbers_of_a_vector_stand_at_their_bars():
    axes = plt.figure().subplots()
    observations.show_bars(axes, ["height", "speed"], np.array([0.5, -2.0]), "two")
    assert [text.get_text() for text in axes.texts] == ["0.50", "-2.00"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["height", "speed"]
    assert [bar.get_width() for bar in axes.patches] == [0.5, -2.0]


def test_cells_of_a_plane_are_blue_where_they_are_one():
    axes = plt.figure().subplots()
    observations.show_cells(axes, np.array([[0, 1], [1, 0]]), "plane")
    image = axes.images[0].get_array()
    blue = [31, 111, 180]  # #1f6fb4
    assert [image[4, 12].tolist(), image[12, 4].tolist()] == [blue, blue]
    assert image[4, 4].tolist() == image[12, 12].tolist() == [229, 231, 235]


def test_a_script_without_a_figure_is_refused(capsys: pytest.CaptureFixture[str]):
    assert observations.main(["ppo_gone"]) == 2
    assert "error: no figure of ppo_gone" in capsys.readouterr().err
