"""Every flag is read, explained, called and set as in CleanRL; what those of the machine do."""

import ast
import re

import pytest
import torch
from helpers.in_process import load_script
from sync import Collection

COLLECTION = Collection()
SCRIPTS = COLLECTION.scripts()
NOT_GIVEN = object()
# Flags of CleanRL's ppo.py and their defaults; batch_size, minibatch_size and num_iterations are
# computed there and here. NOT_GIVEN: any default will do.
CLEANRL = {
    "exp_name": NOT_GIVEN,  # the file's name, computed
    "seed": 1,
    "torch_deterministic": True,
    "cuda": True,
    "track": False,
    "wandb_project_name": NOT_GIVEN,  # theirs is their own project
    "wandb_entity": None,
    "capture_video": False,
    "env_id": "CartPole-v1",
    "total_timesteps": 500_000,
    "learning_rate": 2.5e-4,
    "num_envs": 4,
    "num_steps": 128,
    "anneal_lr": True,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "num_minibatches": 4,
    "update_epochs": 4,
    "norm_adv": True,
    "clip_coef": 0.2,
    "clip_vloss": True,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "target_kl": None,
}
ATARI = {"env_id": "BreakoutNoFrameskip-v4", "total_timesteps": 10_000_000}
ATARI |= {"num_envs": 8, "clip_coef": 0.1}
ENVPOOL = ATARI | {"env_id": "Breakout-v5"}
# What CleanRL's variants set otherwise. Where it has none, nothing is compared but the names.
VARIANTS: dict[str, dict[str, object]] = {
    "ppo.py": {},
    "ppo_continuous_action.py": {
        "env_id": "HalfCheetah-v5",  # theirs is v4, which Gymnasium calls out of date
        "total_timesteps": 1_000_000,
        "learning_rate": 3e-4,
        "num_envs": 1,
        "num_steps": 2048,
        "num_minibatches": 32,
        "update_epochs": 10,
        "ent_coef": 0.0,
    },
    "ppo_multidiscrete.py": dict.fromkeys(CLEANRL, NOT_GIVEN),
    "ppo_multidiscrete_mask.py": dict.fromkeys(CLEANRL, NOT_GIVEN),
    "ppo_atari.py": ATARI,
    "ppo_atari_lstm.py": ATARI,
    "ppo_atari_multigpu.py": ATARI | {"num_envs": NOT_GIVEN},  # theirs counts all processes
    "ppo_atari_envpool.py": ENVPOOL,
    "ppo_atari_envpool_multigpu.py": ENVPOOL,
    "ppo_procgen.py": {
        "env_id": "starpilot",
        "total_timesteps": 25_000_000,
        "learning_rate": 5e-4,
        "num_envs": 64,
        "num_steps": 256,
        "anneal_lr": False,
        "gamma": 0.999,
        "num_minibatches": 8,
        "update_epochs": 3,
    },
    "ppo_pettingzoo_ma_atari.py": {
        "env_id": "pong_v3",
        "total_timesteps": 20_000_000,
        "num_envs": 16,
        "clip_coef": 0.1,
    },
    "ppo_atari_envpool_xla_jax.py": ENVPOOL,
    "ppo_atari_envpool_xla_jax_scan.py": ENVPOOL,
    "ppo_gymnax.py": {"torch_deterministic": False},  # it would make environments slow on a GPU
    "ppo_continuous_action_mjx.py": dict.fromkeys(CLEANRL, NOT_GIVEN),
}


def args_class(source: str) -> ast.ClassDef:
    nodes = ast.parse(source).body
    return next(n for n in nodes if isinstance(n, ast.ClassDef) and n.name == "Args")


def fields(source: str) -> dict[str, ast.AnnAssign]:
    """Fields of Args by name."""
    nodes = [node for node in args_class(source).body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): node for node in nodes}


def value(node: ast.expr | None) -> object:
    """A field's default, or the expression that computes it."""
    try:
        return ast.literal_eval(node) if node else None
    except ValueError:
        return ast.unparse(node)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_field_is_read(name: str) -> None:
    """As args.<name> somewhere, or as self.<name> in a property of Args."""
    source = COLLECTION.source(name)
    own = ast.get_source_segment(source, args_class(source)) or ""
    read = set(re.findall(r"args\.(\w+)\b(?! = )", source))
    read |= set(re.findall(r"self\.(\w+)", own))
    assert fields(source).keys() <= read


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_field_is_explained(name: str) -> None:
    """By a comment behind it, which is its help text."""
    source = COLLECTION.source(name)
    lines = source.splitlines()
    ends = [node.end_lineno for node in fields(source).values()]
    assert [lines[end - 1] for end in ends if end and "  # " not in lines[end - 1]] == []


@pytest.mark.parametrize("name", VARIANTS)  # a script of another kind has no row
def test_cleanrls_flags_work(name: str) -> None:
    found = {field: value(node.value) for field, node in fields(COLLECTION.source(name)).items()}
    wanted = CLEANRL | VARIANTS[name]
    assert wanted.keys() <= found.keys()
    for flag, default in wanted.items():
        if default is not NOT_GIVEN:
            assert (found[flag], type(found[flag])) == (default, type(default)), flag


@pytest.mark.parametrize("asked", [True, False])
def test_flags_of_the_machine_are_obeyed(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """--torch-deterministic and --cuda; --device chooses without asking for the latter."""
    script, cudnn, threads = load_script("ppo.py"), torch.backends.cudnn, list[int]()
    for name in ("deterministic", "benchmark"):
        monkeypatch.setattr(cudnn, name, getattr(cudnn, name))  # given back afterwards
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    args = script.Args(torch_threads=3, torch_deterministic=asked, cuda=asked)
    assert script.setup_torch(args).type == ("cuda" if asked else "cpu")
    assert (cudnn.deterministic, cudnn.benchmark, threads) == (asked, not asked, [3])
    assert script.setup_torch(script.Args(cuda=asked, device="cuda:1")) == torch.device("cuda:1")
