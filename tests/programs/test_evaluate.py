"""evaluate.py: it plays finished, unfinished and edited runs, and executes nothing of them."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command_line import (
    EVALUATE,
    SCRIPT,
    BoobyTrap,
    checkpoint,
    contents,
    finished_run,
    interrupted_run,
    train_command,
)
from helpers.in_process import load_script, record_calls, train
from moviepy import VideoFileClip

program = load_script("evaluate.py")


@pytest.fixture
def evaluate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that runs the program in this process; its exit code, output and errors."""
    monkeypatch.setattr(sys, "path", sys.path[:])

    def run(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *map(str, words)])
        code: object = 0
        try:
            program.main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def play(evaluate: Any) -> Any:
    """A function that runs the program, which must end well; the returns and the summary."""

    def run(*words: object) -> tuple[list[float], str]:
        code, out, err = evaluate(*words)
        assert (code, err) == (0, ""), err
        returns = re.findall(r"^episode +\d+: return (\S+)$", out, re.MULTILINE)
        return list(map(float, returns)), "\n".join(out.splitlines()[len(returns) :])

    return run


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the finished run, to write into."""
    folder = finished_run().folder
    return Path(shutil.copytree(folder, tmp_path / folder.name))


def rewrite(folder: Path, **changes: Any) -> None:
    """Replaces entries of the checkpoint."""
    torch.save(checkpoint(folder) | changes, folder / "checkpoint.pt")


def test_finished_run_is_played_and_left_as_it_is(play: Any, copied: Path) -> None:
    before = contents(copied)
    returns, summary = play(copied, "--episodes", 4)
    assert len(returns) == 4
    assert "CartPole-v1 after 2,048 steps" in summary
    assert f"return {fmean(returns):.1f} ± {np.std(returns):.1f} over 4 episodes" in summary
    assert contents(copied) == before


def test_seed_and_flags_decide_what_is_played(play: Any, copied: Path) -> None:
    """From the folder or from agent.pt; the default is the seed of the run, which is 3."""
    words = (copied, "--episodes", 3)
    sampled = play(*words)
    assert play(copied / "agent.pt", *words[1:], "--seed", 3) == sampled
    assert play(*words, "--seed", 4)[0] != sampled[0]
    greedy = play(*words, "--greedy")
    assert play(*words, "--greedy") == greedy
    assert greedy[0] != sampled[0]


def test_unfinished_run_is_played(play: Any) -> None:
    folder = interrupted_run()[0].folder
    returns, summary = play(folder, "--episodes", 2)
    assert len(returns) == 2
    assert f"after {checkpoint(folder)['global_step']:,} steps" in summary


# Small environments; what is not named has its evaluation from one that is, or a test of its own.
EVALUATED = {
    "ppo_multidiscrete_mask.py": {"env_id": "levers:Levers-v0"},
    "ppo_atari.py": {"env_id": "arcade:Short-v0"},
    "ppo_atari_lstm.py": {"env_id": "arcade:Short-v0"},
    "ppo_pettingzoo_ma_atari.py": {"env_id": "toy_v0"},
    "ppo_procgen.py": {"env_id": "starpilot", "num_levels": 5},
}


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", EVALUATED)
def test_evaluation_samples_actions_unless_it_is_greedy(
    name: str, greedy: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if "pettingzoo" in name:
        import toy_game  # noqa: F401  # registers it
    script = load_script(name)
    args = script.Args(**EVALUATED[name], eval_episodes=1)
    envs = script.make_envs(args, tmp_path)
    agent = script.Agent(envs)
    envs.close()
    calls = record_calls(script.Agent, "get_action", monkeypatch)
    script.evaluate(agent, args, tmp_path, greedy)
    assert {asked for *_, asked in calls} == {greedy}


def test_training_ends_with_an_evaluation_of_sampled_actions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = load_script("ppo.py")
    calls = record_calls(script.Agent, "get_action", monkeypatch)
    train(script, tmp_path, total_timesteps=512, eval_episodes=1)
    assert {asked for _, _, *rest in calls for asked in rest} == {False}


def test_episodes_of_several_seeds_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    results = {"episodic_return": np.array([1.0, 3.0, 5.0, 9.0])}
    program.report(results, "A-v0", range(7, 9))
    *_, last, first_mean, second_mean, total = capsys.readouterr().out.splitlines()
    assert last == "seed 8 episode   2: return 9"
    assert (first_mean, second_mean) == ("seed 7: return 2.0 ± 1.0", "seed 8: return 7.0 ± 2.0")
    assert total == "A-v0: return 4.5 ± 3.0 over 4 episodes"


@pytest.mark.parametrize("bf16", [False, True])
def test_agents_are_played_in_the_precision_they_were_trained_in(bf16: bool) -> None:
    script = load_script("ppo_atari.py")
    run_args = script.Args(env_id="arcade:Short-v0", bf16=bf16, device="cpu", torch_threads=1)
    envs = script.make_envs(replace(run_args, num_envs=1), Path())
    saved = {"agent": script.Agent(envs).state_dict()}
    envs.close()
    assert program.load_agent(script, saved, run_args, program.Args(Path())).bf16 == bf16


def test_every_episode_is_filmed(play: Any, copied: Path) -> None:
    returns, summary = play(copied, "--episodes", 3, "--capture-video")
    (folder,) = re.findall(r"films: (.*)", summary)
    films = sorted(Path(folder).glob("*.mp4"))
    assert len(films) == 3
    assert films == sorted(copied.rglob("*.mp4"))
    for film, length in zip(films, returns, strict=True):
        with VideoFileClip(str(film)) as clip:
            # A film also shows the state before the first step.
            assert abs(len(list(clip.iter_frames())) - length) <= 2


def test_run_of_several_gpus_is_played_without_one(play: Any, tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="needs the extra `atari`")
    script = EVALUATE.with_name("ppo_atari_multigpu.py")
    flags = ("--env-id", "BreakoutNoFrameskip-v4", "--local-num-envs", 2, "--num-steps", 8)
    flags += ("--total-timesteps", 16, "--eval-episodes", 0, "--torch-threads", 1)
    folder = train_command(*flags, cwd=tmp_path, script=script).folder
    rewrite(folder, args=checkpoint(folder)["args"] | {"backend": "nccl"})
    assert len(play(folder, "--episodes", 1)[0]) == 1


# ------ which script plays it ------
def test_the_script_in_the_run_folder_is_not_executed(
    evaluate: Any, copied: Path, tmp_path: Path
) -> None:
    trap = f"import pathlib\npathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n"
    (copied / SCRIPT.name).write_text(trap)
    assert evaluate(copied, "--episodes", 1)[0] == 0
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("where", [".", "resumed_at_512"])
def test_another_version_of_the_script_is_told(
    where: str, evaluate: Any, play: Any, copied: Path
) -> None:
    """The weights may fit a network that is not the one they were trained in."""
    edited = copied / where / SCRIPT.name
    if where != ".":  # copied first, as cp and git may do, but the last part of the run
        edited.parent.mkdir()
        (copied / "resumed_at_64").mkdir()
        shutil.copy(SCRIPT, copied / "resumed_at_64")
    edited.write_text(SCRIPT.read_text().replace("nn.Tanh()", "nn.ReLU()"))
    os.utime(edited, (0, 0))
    code, _, told = evaluate(copied, "--episodes", 1)
    assert code == 0 and told.count("\n") == 1
    named = told.rstrip().rsplit("--script ", 1)[1]
    assert Path(named) == edited
    play(copied, "--episodes", 1, "--script", named)  # and now nothing is told


def test_run_of_an_edited_script_is_played_with_it(
    evaluate: Any, play: Any, tmp_path: Path
) -> None:
    """The width of its network is in a file beside it. A mistake in it keeps its traceback."""
    (tmp_path / "width_of_mine.py").write_text("WIDTH = 24\n")
    script = tmp_path / "my_ppo.py"
    source = SCRIPT.read_text().replace("64)", "WIDTH)").replace("(64,", "(WIDTH,")
    beside = "import torch\nfrom width_of_mine import WIDTH\n"
    script.write_text(source.replace("import torch\n", beside, 1))
    flags = ("--total-timesteps", 512, "--eval-episodes", 0)
    folder = train_command(*flags, cwd=tmp_path, script=script).folder
    assert len(play(folder, "--episodes", 2, "--script", script)[0]) == 2
    script.write_text(script.read_text().replace("nn.Tanh()", "nn.Tanhh()"))
    with pytest.raises(AttributeError, match="Tanhh"):
        evaluate(folder, "--script", script)


# ------ bad input ------
def names_elsewhere(folder: Path) -> None:
    """Makes the run claim that a script of its own choice made it."""
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(folder.parent / 'sprung')!r})\n")
    (folder / "args.json").write_text(json.dumps({"script": str(folder / "evil.py")}))


# Name: what is done to the run folder, arguments after it, what the line must say.
ROWS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no run": (shutil.rmtree, "", "no run at"),
    "no args.json": (lambda run: (run / "args.json").unlink(), "", "not a run folder"),
    "script elsewhere": (names_elsewhere, "", r"evil\.py, .*--script"),
    "no checkpoint": (lambda run: (run / "checkpoint.pt").unlink(), "", "checkpoint"),
    "trap": (lambda run: rewrite(run, agent=BoobyTrap(run.parent / "sprung")), "", "checkpoint"),
    "foreign weights": (lambda run: rewrite(run, agent={"a": torch.ones(1)}), "", "no agent that"),
    "no episodes": (lambda _: None, "--episodes 0", "--episodes"),
    "no such script": (lambda _: None, "--script nowhere.py", r"nowhere\.py"),
}


@pytest.mark.parametrize(
    ("damage", "arguments", "message"), ROWS.values(), ids=[name.replace(" ", "-") for name in ROWS]
)
def test_bad_input_is_refused_in_one_line(
    damage: Callable[[Path], object], arguments: str, message: str, evaluate: Any, copied: Path
) -> None:
    damage(copied)
    before = contents(copied.parent)
    code, out, told = evaluate(copied, *arguments.split())
    assert (code, out) == (2, "")
    assert told.count("\n") == 1 and re.search(message, told), told
    assert contents(copied.parent) == before


def test_films_need_a_folder_that_can_be_written_to(
    evaluate: Any, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, _mode: path != copied)
    code, _, told = evaluate(copied, "--capture-video")
    assert code == 2 and f"--capture-video: {copied}" in told
