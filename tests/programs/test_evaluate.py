"""evaluate.py, as a user runs it: on finished, unfinished, foreign and malicious runs."""

import inspect
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
    CommandRun,
    checkpoint,
    contents,
    finished_run,
    interrupted_run,
    run_command,
    train_command,
)
from helpers.in_process import load_script
from helpers.in_process import train as train_here
from moviepy import VideoFileClip


def evaluate(target: Path, *args: object, cwd: Path, **changes: str) -> tuple[list[float], str]:
    """The returns that evaluate.py prints, one a line, and the lines after them."""
    done = run_command(target, *args, cwd=cwd, script=EVALUATE, **changes)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    returns = [re.fullmatch(r"episode +(\d+): return (\S+)", line) for line in lines]
    found = [(int(match[1]), float(match[2])) for match in returns if match]
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return [value for _, value in found], "\n".join(lines[len(found) :])


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the finished run, to write into."""
    folder = finished_run().folder
    return Path(shutil.copytree(folder, tmp_path / folder.name))


def test_finished_run_is_played_and_left_as_it_is(copied: Path, tmp_path: Path) -> None:
    before = contents(copied)
    returns, summary = evaluate(copied, "--episodes", 4, cwd=tmp_path)
    assert len(returns) == 4
    assert "CartPole-v1 after 2,048 steps" in summary
    assert f"return {fmean(returns):.1f} ± " in summary
    assert contents(copied) == before


def test_the_same_seed_plays_the_same_episodes(copied: Path, tmp_path: Path) -> None:
    """From the folder or from agent.pt; the default is the seed of the run, which is 3."""
    folder = evaluate(copied, "--episodes", 3, cwd=tmp_path)
    assert evaluate(copied / "agent.pt", "--episodes", 3, "--seed", 3, cwd=tmp_path) == folder
    assert evaluate(copied, "--episodes", 3, "--seed", 4, cwd=tmp_path)[0] != folder[0]


def test_greedy_actions_are_not_sampled(copied: Path, tmp_path: Path) -> None:
    args = ("--episodes", 3, "--greedy")
    first = evaluate(copied, *args, "--seed", 5, cwd=tmp_path)
    assert evaluate(copied, *args, "--seed", 5, cwd=tmp_path) == first
    assert evaluate(copied, "--episodes", 3, "--seed", 5, cwd=tmp_path)[0] != first[0]


# Small environments; scripts that are not named share their evaluation with one that is.
EVALUATED = {
    "ppo.py": {"env_id": "clockwork:Clockwork-v0"},
    "ppo_continuous_action.py": {"env_id": "continuous:Target-v0", "num_minibatches": 4},
    "ppo_multidiscrete_mask.py": {"env_id": "levers:Levers-v0"},
    "ppo_atari_lstm.py": {"env_id": "arcade:Short-v0", "num_envs": 4},
    "ppo_pettingzoo_ma_atari.py": {"env_id": "toy_v0"},
    "ppo_procgen.py": {"env_id": "starpilot"},
}


@pytest.mark.parametrize("name", EVALUATED)
def test_a_run_is_evaluated_with_sampled_actions(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in training, and not with the most probable ones."""
    if "pettingzoo" in name:
        import toy_game  # noqa: F401  # registers it
    script, asked = load_script(name), []
    get_action = script.Agent.get_action

    def spy(*args: Any, **flags: Any) -> Any:
        asked.append(inspect.signature(get_action).bind(*args, **flags).arguments.get("greedy"))
        return get_action(*args, **flags)

    monkeypatch.setattr(script.Agent, "get_action", spy)
    flags = {"num_envs": 2, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1}
    flags |= EVALUATED[name] | {"eval_episodes": 2}
    flags["total_timesteps"] = flags["num_envs"] * 8
    train_here(script, tmp_path, **flags)
    assert len(asked) > 8
    assert not any(asked)


def test_episodes_of_several_seeds_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    results = {"episodic_return": np.array([1.0, 3.0, 5.0, 9.0])}
    load_script("evaluate.py").report(results, "A-v0", range(7, 9))
    assert capsys.readouterr().out.splitlines() == [
        "seed 7 episode   1: return 1",
        "seed 7 episode   2: return 3",
        "seed 8 episode   1: return 5",
        "seed 8 episode   2: return 9",
        "seed 7: return 2.0 ± 1.0",
        "seed 8: return 7.0 ± 2.0",
        "A-v0: return 4.5 ± 3.0 over 4 episodes",
    ]


@pytest.mark.parametrize("bf16", [False, True])
def test_agents_are_played_in_the_precision_they_were_trained_in(bf16: bool) -> None:
    program = load_script("evaluate.py")
    script = load_script("ppo_atari.py")
    run_args = script.Args(env_id="arcade:Short-v0", bf16=bf16, device="cpu", torch_threads=1)
    envs = script.make_envs(replace(run_args, num_envs=1), Path())
    weights = script.Agent(envs).state_dict()
    envs.close()
    assert (
        program.load_agent(script, {"agent": weights}, run_args, program.Args(Path())).bf16 == bf16
    )


@pytest.mark.parametrize("name", ["", "checkpoint.pt"])
def test_unfinished_run_is_played(name: str, tmp_path: Path) -> None:
    folder = interrupted_run()[0].folder
    returns, summary = evaluate(folder / name, "--episodes", 2, cwd=tmp_path)
    assert len(returns) == 2
    assert f"after {checkpoint(folder)['global_step']:,} steps" in summary


def test_every_episode_is_filmed(copied: Path, tmp_path: Path) -> None:
    returns, summary = evaluate(copied, "--episodes", 3, "--capture-video", cwd=tmp_path)
    (line,) = re.findall(r"films: (.*)", summary)
    films = sorted((tmp_path / line).glob("*.mp4"))
    assert len(films) == 3
    assert films == sorted(copied.rglob("*.mp4"))
    for film, length in zip(films, returns, strict=True):
        with VideoFileClip(str(film)) as clip:
            # A film also shows the state before the first step.
            assert abs(len(list(clip.iter_frames())) - length) <= 2


def test_the_script_in_the_run_folder_is_not_executed(copied: Path, tmp_path: Path) -> None:
    trap = f"import pathlib\npathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n"
    (copied / SCRIPT.name).write_text(trap)
    done = run_command(copied, "--episodes", 1, cwd=copied, script=EVALUATE)
    assert done.returncode == 0
    assert not (tmp_path / "sprung").exists()


def test_run_that_was_compiled_is_played_without_a_compiler(copied: Path, tmp_path: Path) -> None:
    state = checkpoint(copied)
    state["args"] |= {"compile": True}
    torch.save(state, copied / "checkpoint.pt")
    assert len(evaluate(copied, "--episodes", 1, cwd=tmp_path, PATH="")[0]) == 1


def test_run_into_somebody_elses_folder_is_played(copied: Path, tmp_path: Path) -> None:
    state = checkpoint(copied)
    state["args"] |= {"runs_dir": "/dev/null/runs"}
    torch.save(state, copied / "checkpoint.pt")
    assert len(evaluate(copied, "--episodes", 1, cwd=tmp_path)[0]) == 1


def test_run_that_cannot_be_written_to_is_played_but_not_filmed(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    module, access = load_script("evaluate.py"), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != copied and access(path, mode))
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(copied), "--episodes", "1"])
    module.main()
    assert "over 1 episodes" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--capture-video"])
    with pytest.raises(SystemExit, match="2"):
        module.main()
    assert f"--capture-video: {copied} is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("where", [".", "resumed_at_512"])
def test_another_version_of_the_script_is_told(where: str, copied: Path, tmp_path: Path) -> None:
    """The weights may fit a network that is not the one they were trained in."""
    edited = copied / where / SCRIPT.name
    edited.parent.mkdir(exist_ok=True)
    edited.write_text(SCRIPT.read_text().replace("nn.Tanh()", "nn.ReLU()"))
    done = run_command(copied, "--episodes", 1, cwd=tmp_path, script=EVALUATE)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert f"{SCRIPT} is not the version that made this run" in done.stderr
    named = done.stderr.rstrip().rsplit("--script ", 1)[1]
    assert Path(named) == edited
    evaluate(copied, "--episodes", 1, "--script", named, cwd=tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for uv is a shell script")
def test_what_uv_cannot_install_is_told_in_one_line(copied: Path, tmp_path: Path) -> None:
    script, uv = tmp_path / "needy.py", tmp_path / "bin" / "uv"
    script.write_text("import no_such_package_at_all")
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 2\n")
    uv.chmod(0o755)
    changes = {"PATH": f"{uv.parent}:{os.environ['PATH']}"}
    done = run_command(copied, "--script", script, cwd=tmp_path, script=EVALUATE, **changes)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "needy.py needs no_such_package_at_all, and uv cannot" in done.stderr


@pytest.mark.slow("command line")
def test_run_of_several_gpus_goes_on_and_is_played_without_one(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="needs the extra `atari`")
    script = EVALUATE.with_name("ppo_atari_multigpu.py")
    flags = ("--env-id", "BreakoutNoFrameskip-v4", "--local-num-envs", 2, "--num-steps", 8)
    flags += ("--total-timesteps", 16, "--eval-episodes", 0, "--torch-threads", 1)
    folder = train_command(*flags, cwd=tmp_path, script=script).folder
    state = checkpoint(folder)
    state["args"] |= {"device_ids": (0, 0, 1, 1)}
    torch.save(state, folder / "checkpoint.pt")
    done = run_command("--resume", folder, "--total-timesteps", 32, cwd=tmp_path, script=script)
    assert done.returncode == 0, done.stderr
    torch.save(checkpoint(folder) | {"args": state["args"]}, folder / "checkpoint.pt")
    done = run_command(folder, "--episodes", 1, cwd=tmp_path, script=EVALUATE)
    assert done.returncode == 0 and "over 1 episodes" in done.stdout, done.stderr


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CommandRun]:
    """Somebody's own script, whose network's width is in a file beside it, and a run of it."""
    cwd = tmp_path_factory.mktemp("edited")
    (cwd / "width_of_mine.py").write_text("WIDTH = 24\n")
    script = cwd / "my_ppo.py"
    source = SCRIPT.read_text().replace("64)", "WIDTH)").replace("(64,", "(WIDTH,")
    script.write_text(
        source.replace("import torch\n", "import torch\nfrom width_of_mine import WIDTH\n", 1)
    )
    return script, train_command(
        *("--total-timesteps", 512, "--eval-episodes", 0), cwd=cwd, script=script
    )


def test_run_of_an_edited_script_is_played_with_it(
    edited: tuple[Path, CommandRun], tmp_path: Path
) -> None:
    script, made = edited
    assert json.loads((made.folder / "args.json").read_text())["script"] == "my_ppo.py"
    returns, _ = evaluate(made.folder, "--episodes", 2, "--script", script, cwd=tmp_path)
    assert len(returns) == 2


def test_mistake_in_an_edited_script_keeps_its_traceback(
    edited: tuple[Path, CommandRun], tmp_path: Path
) -> None:
    script, made = edited
    shutil.copy(script.with_name("width_of_mine.py"), tmp_path)
    broken = tmp_path / script.name
    broken.write_text(script.read_text().replace("nn.Tanh()", "nn.Tanhh()"))
    done = run_command(made.folder, "--script", broken, cwd=tmp_path, script=EVALUATE)
    assert done.returncode == 1
    assert "has no attribute 'Tanhh'" in done.stderr
    other = tmp_path / "other" / script.name
    other.parent.mkdir()
    other.write_text(SCRIPT.read_text())
    done = run_command(made.folder, "--script", other, cwd=tmp_path, script=EVALUATE)
    assert done.returncode == 2
    assert re.search(r"no agent that fits .*size mismatch for critic\.1\.weight", done.stderr)


def test_missing_script_is_named(edited: tuple[Path, CommandRun], tmp_path: Path) -> None:
    done = run_command(edited[1].folder, cwd=tmp_path, script=EVALUATE)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "my_ppo.py" in done.stderr
    assert "--script" in done.stderr


class BoobyTrap:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def rewrite(folder: Path, **changes: Any) -> None:
    """Replaces entries of the checkpoint; None removes one."""
    state = checkpoint(folder) | changes
    torch.save({k: v for k, v in state.items() if v is not None}, folder / "checkpoint.pt")


def truncate(folder: Path) -> None:
    """Leaves the first half of the checkpoint."""
    file = folder / "checkpoint.pt"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def names_elsewhere(folder: Path) -> None:
    """Makes the run claim that a script of its own choice made it."""
    (folder.parent / "evil.py").write_text(
        f"import os\nos.mkdir({str(folder.parent / 'sprung')!r})\n"
    )
    about = {"script": str(folder.parent / "evil.py")}
    (folder / "args.json").write_text(json.dumps(about))


# Name, what is done to the run folder, arguments of evaluate.py after it, what the line must say.
ROWS: list[tuple[str, Callable[[Path], object], str, str]] = [
    ("no run", shutil.rmtree, "", "no run at"),
    ("no args.json", lambda run: (run / "args.json").unlink(), "", "not a run folder"),
    ("args.json damaged", lambda run: (run / "args.json").write_text("[{"), "", "args.json"),
    ("script elsewhere", names_elsewhere, "", r"evil\.py"),
    ("no checkpoint", lambda run: (run / "checkpoint.pt").unlink(), "", "checkpoint"),
    ("truncated", truncate, "", "checkpoint"),
    ("trap", lambda run: rewrite(run, agent=BoobyTrap(run.parent / "sprung")), "", "checkpoint"),
    ("another script's", lambda run: rewrite(run, script="ppo_x.py"), "", r"ppo_x\.py"),
    ("no weights", lambda run: rewrite(run, agent=None), "", "agent|checkpoint"),
    ("foreign weights", lambda run: rewrite(run, agent={"a": torch.ones(1)}), "", "agent|weights"),
    ("no episodes", lambda _: None, "--episodes 0", "--episodes"),
    ("no such script", lambda _: None, "--script nowhere.py", "nowhere.py"),
    ("no such device", lambda _: None, "--device cuda", "--device cuda"),
    ("seed negative", lambda _: None, "--seed -3", "seed"),
]


@pytest.mark.parametrize(
    ("damage", "arguments", "message"),
    [row[1:] for row in ROWS],
    ids=[row[0].replace(" ", "-") for row in ROWS],
)
def test_bad_input_is_refused_in_one_line(
    damage: Callable[[Path], object], arguments: str, message: str, copied: Path, tmp_path: Path
) -> None:
    damage(copied)
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = run_command(copied, *arguments.split(), cwd=cwd, script=EVALUATE)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert re.search(message, done.stderr), done.stderr
    assert done.stdout == ""
    assert set(tmp_path.rglob("*")) - set(before) <= {tmp_path / "cwd-home"}
