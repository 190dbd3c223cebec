"""Every flag is read, explained, and called and set as in CleanRL."""

import ast
import io
import os
import subprocess
import sys
import tokenize

import pytest
import torch
from sync import Collection

COLLECTION = Collection()
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
# What CleanRL's variants set otherwise. It has no multidiscrete scripts: nothing is compared there
# but the names.
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
    # It has none with MJX: all but task, steps and robots is as in ppo_continuous_action.py.
    "ppo_continuous_action_mjx.py": {
        "torch_deterministic": False,  # as in ppo_gymnax.py
        "env_id": "CheetahRun",
        "total_timesteps": 10_000_000,
        "learning_rate": 3e-4,
        "num_envs": 64,
        "num_steps": 32,
        "num_minibatches": 32,
        "update_epochs": 10,
        "ent_coef": 0.0,
    },
}

SMALL = ("ppo.py", "ppo_continuous_action.py", "ppo_multidiscrete.py", "ppo_multidiscrete_mask.py")


def args_class(source: str) -> ast.ClassDef:
    tree = ast.parse(source)
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Args")


def fields(source: str) -> dict[str, ast.AnnAssign]:
    """Fields of Args by name."""
    nodes = [node for node in args_class(source).body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): node for node in nodes}


def constants(source: str, names: dict[str, object]) -> dict[str, object]:
    """Values of the constants above Args that need no other names than these."""
    values: dict[str, object] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            break
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = eval(ast.unparse(node.value), dict(names))
    return values


def attributes(node: ast.AST, owner: str) -> set[str]:
    """Attributes that are read of a name `owner`, or of an attribute of that name (self.args.x)."""
    found = set()
    for item in ast.walk(node):
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Load):
            match item.value:
                case ast.Name(id=name) | ast.Attribute(attr=name) if name == owner:
                    found.add(item.attr)
    return found


def unread_fields(source: str) -> list[str]:
    """Fields of Args that nothing reads, neither as args.<name> nor through a property in use."""
    args = args_class(source)
    tree = ast.parse(source)
    outside = [n for n in tree.body if not (isinstance(n, ast.ClassDef) and n.name == "Args")]
    read = set().union(*(attributes(node, "args") for node in outside))
    properties: dict[str, ast.AST] = {
        n.name: n for n in args.body if isinstance(n, ast.FunctionDef)
    }
    for node in args.body:  # name = property(lambda self: ...)
        if isinstance(node, ast.Assign):
            properties[ast.unparse(node.targets[0])] = node.value
    queue = [name for name in properties if name in read or name == "__post_init__"]
    while queue:
        new = attributes(properties.pop(queue.pop()), "self")
        queue += [name for name in new & properties.keys() if name not in queue]
        read |= new
    return [name for name in fields(source) if name not in read]


def unexplained_fields(source: str) -> list[str]:
    """Fields of Args without a comment behind them: it is their help text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    return [name for name, node in fields(source).items() if node.end_lineno not in comments]


def other_than_cleanrl(source: str, variant: dict[str, object]) -> list[str]:
    """Flags of CleanRL that are missing or have another default (or one of another type)."""
    here, problems = fields(source), []
    for name, default in (CLEANRL | variant).items():
        if name not in here:
            problems.append(f"{name} is missing")
            continue
        if default is NOT_GIVEN:
            continue
        node = here[name].value
        try:
            value = ast.literal_eval(node) if node else None
        except ValueError:
            value = ast.unparse(node)
        if value != default or type(value) is not type(default):
            problems.append(f"{name} is {value!r}, CleanRL's is {default!r}")
    return problems


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_every_field_is_read(name: str):
    assert unread_fields(COLLECTION.source(name)) == []


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_every_field_is_explained(name: str):
    assert unexplained_fields(COLLECTION.source(name)) == []


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_cleanrls_flags_work(name: str):
    assert other_than_cleanrl(COLLECTION.source(name), VARIANTS[name]) == []


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_computed_values_are_no_flags(name: str):
    computed = {"batch_size", "minibatch_size", "num_iterations"}
    assert not computed & fields(COLLECTION.source(name)).keys()


@pytest.mark.parametrize("name", COLLECTION.scripts())
def test_threads_by_default_are_one_or_the_share_of_a_run(name, monkeypatch):
    """One for small networks; else what torch counts, which heeds OMP_NUM_THREADS: a benchmark's
    workers and SLURM's jobs are given it. Torchrun sets that to 1 by itself: under it the CPUs that
    the launch may use are split. JAX has no such count: it gets all of them."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    source = COLLECTION.source(name)
    names = {"os": os, "torch": torch} | constants(source, names={"os": os})
    if name in SMALL:
        wanted = 1
    elif "multigpu" in name:
        wanted = 6
    elif "jax" in name:
        wanted = 12
    else:
        wanted = 5
    flags = fields(source)
    of_torch, of_envs = flags.get("torch_threads"), flags.get("env_threads")
    assert (of_torch is not None) == ("import torch" in source)
    assert (of_envs is not None) == ("envpool" in name or "procgen" in name)
    for node in (of_torch, of_envs):
        if node is not None:
            assert node.value is not None
            assert eval(ast.unparse(node.value), names) == wanted


def test_what_torch_counts_heeds_the_environment():
    words = [sys.executable, "-c", "import torch; print(torch.get_num_threads())"]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(words, env=one, capture_output=True, text=True).stdout == "1\n"


# ------ each kind of failure, on a synthetic script ------
SCRIPT = """\
class Args:
    seed: int = 1  # seeds everything
    num_envs: int = 4  # environments
    num_steps: int = 8  # steps
    forgotten: int = 0  # read by nobody
    written: int = 0  # only written
    through: int = 0  # read by a property that nobody uses
    noted: int = 0

    @property
    def batch_size(self):
        return self.width * self.num_steps

    @property
    def width(self):
        return self.num_envs

    @property
    def unused(self):
        return self.through


class Run:
    def log(self):
        return self.args.seed + self.forgotten


def train(args):
    args.written = args.batch_size + args.noted
"""


def test_unread_and_unexplained_fields_are_found():
    assert unread_fields(SCRIPT) == ["forgotten", "written", "through"]
    assert unexplained_fields(SCRIPT) == ["noted"]


def test_missing_flags_and_other_defaults_are_found():
    problems = other_than_cleanrl(SCRIPT, {"num_envs": 4.0})
    assert "num_envs is 4, CleanRL's is 4.0" in problems
    assert "num_steps is 8, CleanRL's is 128" in problems
    assert "exp_name is missing" in problems
    assert not any(problem.startswith("seed") for problem in problems)
