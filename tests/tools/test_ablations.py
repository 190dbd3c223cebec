"""Ablations: each is a script that trains, without the detail and with nothing else changed."""

import functools
import re
import tempfile
from math import nan
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import pytest
import torch
from ablations import TRAINED as SCRIPT_DETAILS
from ablations import beyond_chance, cell, lines_about, sentences, tables
from edits import Ablation, ablations, own_ablations
from effects import Effect
from helpers.in_process import load_file, train
from mutations import read_mutations, tagged_lines
from sync import Collection
from torch.distributions import Laplace, MultivariateNormal, Normal

SCRIPTS = tuple(SCRIPT_DETAILS)
COLLECTION = Collection()
# Episodes are cut off and updates are large, so that no detail is without an effect.
CARTPOLE = "gymnasium.envs.classic_control:CartPoleEnv"
gym.register("ShortCartPole-v0", CARTPOLE, max_episode_steps=10)
LARGE = {"learning_rate": 0.01, "clip_coef": 0.05, "max_grad_norm": 0.05, "update_epochs": 2}
FLAGS: dict[str, dict[str, Any]] = {
    "ppo.py": {
        "env_id": "ShortCartPole-v0",
        "num_steps": 32,
        "total_timesteps": 256,
        **LARGE,
    },
    "ppo_continuous_action.py": {
        "env_id": "continuous:Walk-v0",
        "seed": 5,  # one of this seed's rewards is huge
        "num_steps": 256,
        "num_minibatches": 2,
        "total_timesteps": 512,
        **LARGE,
    },
}


def of(script: str, tag: str) -> Ablation:
    return ablations(script, COLLECTION.source(script))[tag]


# Those that a script has from its parent are trained there.
TRAINED = [
    (script, ablation)
    for script in SCRIPTS
    for ablation in own_ablations(script).values()
    if ablation.edits
]


def load(script: str, source: str, folder: Path) -> ModuleType:
    """Imports an edited copy of a script."""
    copy = folder / script
    copy.write_text(source)
    return load_file(copy, f"{folder.name.replace('-', '_')}_{copy.stem}")


def weights(script: str, source: str, folder: Path, **flags: Any) -> torch.Tensor:
    """All weights after a short training."""
    module = load(script, source, folder)
    run = train(module, folder / "run", **{**FLAGS[script], **flags})
    return torch.cat([x.double().flatten() for x in run.state["agent"].values()])


@functools.cache
def baseline_weights(script: str, **flags: Any) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        return weights(script, COLLECTION.source(script), Path(folder), **flags)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_detail_has_an_ablation(script: str):
    source = COLLECTION.source(script)
    found = ablations(script, source)
    assert set(found) == set(tagged_lines(source))
    for ablation in found.values():
        assert 4 < len(ablation.without) < 100 and not ablation.without.endswith(".")
        edited = ablation.apply(source)
        assert (edited != source) == bool(ablation.edits)
        compile(edited, script, "exec")


@pytest.mark.parametrize(
    ("script", "ablation"), TRAINED, ids=[f"{script}-{a.name}" for script, a in TRAINED]
)
def test_trains_otherwise_than_the_script(script: str, ablation: Ablation, tmp_path: Path):
    flags = {}
    if script == "ppo_continuous_action.py" and ablation.tag == "continuous-5":
        flags["env_id"] = "continuous:Target-v0"  # others refuse actions beyond their bounds
    edited = weights(script, ablation.apply(COLLECTION.source(script)), tmp_path, **flags)
    assert edited.isfinite().all()
    unedited = baseline_weights(script, **flags)
    assert edited.shape != unedited.shape or not torch.equal(edited, unedited)


def test_debug_variables_change_nothing_that_is_learned(tmp_path: Path):
    """What the table says of core-12."""
    (mutation,) = (m for m in read_mutations("ppo.py") if m.undone == "no debug variables")
    edited = weights("ppo.py", mutation.apply(COLLECTION.source("ppo.py")), tmp_path)
    assert torch.equal(edited, baseline_weights("ppo.py"))


def test_one_environment_does_the_steps_of_all(tmp_path: Path):
    source = of("ppo.py", "core-1").apply(COLLECTION.source("ppo.py"))
    module = load("ppo.py", source, tmp_path)
    run = train(module, tmp_path / "run", **FLAGS["ppo.py"])
    args = run.state["args"]
    assert (args["num_envs"], args["num_steps"]) == (1, 4 * 32)
    assert run.state["global_step"] == 256
    again = module.train(run.args, run.folder, torch.load(run.folder / "checkpoint.pt"))
    assert again == 0, "it can be resumed"


# ------ other policies, against torch's distributions ------


def policy(tag: str, folder: Path) -> tuple[Any, torch.Tensor]:
    """An agent of two actions whose weights are random, and observations."""
    script = "ppo_continuous_action.py"
    module = load(script, of(script, tag).apply(COLLECTION.source(script)), folder)
    envs = module.make_envs(module.Args(env_id="continuous:Walk-v0", num_envs=1), Path())
    agent = module.Agent(envs)
    torch.manual_seed(1)
    for parameter in agent.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return agent, torch.randn(1, 3).expand(100_000, 3)


def check_policy(agent: Any, x: torch.Tensor, expected: Any, entropy: torch.Tensor) -> None:
    """Samples, log-probabilities and entropy are those of the distribution."""
    with torch.no_grad():
        actions = agent.get_action(x)
        logprob, found, _ = agent.get_logprob_entropy_value(x, actions)
    wanted = expected.log_prob(actions)
    wanted = wanted.sum(-1) if wanted.ndim == 2 else wanted
    torch.testing.assert_close(logprob, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[0], entropy, atol=1e-4, rtol=1e-4)
    assert -wanted.mean() == pytest.approx(float(entropy), abs=0.02), "samples are of it"
    shift = actions.mean(0) - agent.get_action(x[:1], greedy=True)[0]
    assert (shift / actions.std(0)).abs().max() < 0.02


@torch.no_grad()
def test_laplace(tmp_path: Path):
    agent, x = policy("continuous-1", tmp_path)
    expected = Laplace(agent.actor(x[:1]), agent.actor_logstd.exp() / 2**0.5)
    torch.testing.assert_close(expected.stddev[0], agent.actor_logstd.exp())
    check_policy(agent, x, expected, expected.entropy().sum())


@torch.no_grad()
def test_deviation_depends_on_the_state(tmp_path: Path):
    agent, x = policy("continuous-2", tmp_path)
    mean, logstd = agent.actor(x[:1]).chunk(2, -1)
    expected = Normal(mean, logstd.exp())
    check_policy(agent, x, expected, expected.entropy().sum())


@torch.no_grad()
def test_correlated_components(tmp_path: Path):
    agent, x = policy("continuous-3", tmp_path)
    mixing = torch.eye(2) + agent.actor_mixing.triu(1)
    transposed = torch.linalg.inv(mixing) @ agent.actor_logstd.exp().diag()  # white to noise
    expected = MultivariateNormal(agent.actor(x[:1])[0], transposed.T @ transposed)
    assert expected.covariance_matrix[0, 1].abs() > 0.05
    check_policy(agent, x, expected, expected.entropy())


# ------ the tables ------


def test_a_detail_of_ppo_is_undone_as_there():
    script = "ppo_continuous_action.py"
    assert of(script, "core-3") == own_ablations("ppo.py")["core-3"]
    assert of(script, "core-10") == own_ablations(script)["core-10"]
    assert of("ppo.py", "core-10").edits and not of(script, "core-10").edits


def test_what_does_not_fit_is_told():
    source = COLLECTION.source("ppo.py").replace("eps=1e-5", "eps=1e-4")
    with pytest.raises(ValueError, match=r"ppo\.toml, core-3: 'eps=1e-5' occurs 0 times"):
        ablations("ppo.py", source)["core-3"].apply(source)
    child = COLLECTION.source("ppo_continuous_action.py").replace("eps=1e-5", "eps=1e-4")
    assert "core-3" not in ablations("ppo_continuous_action.py", child)


# ------ what docs/ablations.md says ------


def an_effect(tag: str, difference: float, **more: Any) -> Effect:
    """Of a script that learns from 1 to 11; the interval of 2 leaves out 0."""
    limits = {"low": difference - 1, "high": difference + 1, "p": 0.0001}
    numbers: dict[str, Any] = {"runs": 5, "diverged": 0, "baseline_runs": 5, "start": 1.0}
    numbers |= {"score": 11 + difference, "baseline": 11.0, "difference": difference, **limits}
    return Effect(tag, **{"env_id": "A-v0", **numbers, **more})


def test_details_are_named_by_whether_chance_explains_them():
    effects = [
        an_effect("core-4", -9.0),
        an_effect("core-4", -2.0, env_id="B-v0"),
        an_effect("core-3", -10.0),
        an_effect("core-5", 9.0),
        an_effect("core-7", -9.0, high=1.0, p=0.06),
        an_effect("core-8", 0.0, low=0, high=0, p=1, same=True),
        an_effect("core-9", -9.0, low=nan, high=nan, p=nan),
    ]
    script = "ppo_continuous_action.py"
    sure = beyond_chance({"ppo.py": effects, script: [an_effect("core-6", -9, p=0.04)]})
    named = re.findall(r"less|more|core-\d|\d+ %", lines_about(sure))
    lost = ["less", "core-3", "100 %", "core-4", "90 %", "20 %"]
    assert named == [*lost, "more", "core-5", "90 %"]


def test_without_all_runs_there_is_no_number():
    assert cell(an_effect("core-1", nan, low=nan, high=nan, p=nan)) == "not finished"


def test_the_page_has_what_was_published():
    text = tables(COLLECTION)
    assert "| torch's default epsilon, 1e-8 | " in text and "not run yet" not in text
    (said,) = [line for line in sentences(COLLECTION)["core-13"] if "`ppo.py`" in line]
    change = said.partition("CartPole-v1 ")[2].partition(";")[0].strip(".")
    assert f"| **{change}** |" in text
