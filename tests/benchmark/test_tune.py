"""The search for flags, driven with a script that only pretends to train."""

import fcntl
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pandas as pd
import pytest
import tune
from helpers import processes
from helpers.benchmark_runs import BENCHMARK, FakeScript, run_program, starts, write_returns
from helpers.command_line import finish, wait_until
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from scipy import stats


class FakeSearch(FakeScript):
    """Searches over the learning rate of a script that pretends to train."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.study = folder / "study"
        self.logs("None", 2.0)

    def logs(self, rate: str, episodic_return: float) -> None:
        """With this learning rate all episodes have this return."""
        write_returns(self.folder / f"events-{rate}", episodic_return)

    def words(self, rates: str, *flags: str) -> list[str]:
        """What follows tune.py on its command line."""
        command = ["--command", f"{sys.executable} {self.path}"]
        targets = ["--target-scores", "A-v0=0:10", "B-v0=10:-10"]
        space = ["--space", f"learning-rate={rates}"]
        return [*command, *targets, *space, "--study", str(self.study), *flags]

    def search(self, rates: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """The program in this process, until it ends."""
        return run_program("tune.py", *self.words(rates, *flags))

    def storage(self) -> optuna.storages.JournalStorage:
        """Where the study is kept."""
        return optuna.storages.JournalStorage(JournalFileBackend(str(self.study / "study.log")))

    def enqueue(self, rates: str) -> None:
        """The search will try the learning rates in this order."""
        self.study.mkdir()
        study = optuna.create_study(study_name="tune", storage=self.storage(), direction="maximize")
        names = rates.split(",")
        for rate in names:
            study.enqueue_trial({"learning-rate": rate})

    def trials(self) -> dict[str, FrozenTrial]:
        """The last trial of each learning rate, as they stand in the journal."""
        study = optuna.load_study(study_name="tune", storage=self.storage())
        return {t.params["learning-rate"]: t for t in study.trials if t.params}

    def folders(self, rate: str) -> list[Path]:
        """The run folders of a learning rate, sorted by environment and seed."""
        return sorted(p.parent for p in self.study.glob(f"learning-rate_{rate}/*/args.json"))


@pytest.fixture
def fake(tmp_path: Path) -> FakeSearch:
    return FakeSearch(tmp_path)


def test_a_search_finds_the_best_flags_and_checks_them(fake, tmp_path):
    """Two workers; the score is the mean of A's return / 10 and (10 - B's return) / 20."""
    for rate, episodic_return in (("0.1", 4.0), ("0.2", 8.0)):
        fake.logs(rate, episodic_return)
    rates = "0.1,0.2,Fail,Refuse,0.4"  # 0.4 logs nothing
    fake.enqueue(rates)
    out = tmp_path / "out"
    flags = ("--num-seeds", "1", "--workers", "2", "--check-seeds", "2", "--plot", str(out))
    done = fake.search(rates, "--trials", "5", *flags)
    assert done.returncode == 0, done.stderr
    trials = fake.trials()
    # By hand: (4 / 10 + (10 - 4) / 20) / 2 and (8 / 10 + (10 - 8) / 20) / 2.
    assert trials["0.1"].value == pytest.approx(0.35)
    assert trials["0.2"].value == pytest.approx(0.45)
    reasons = {
        "Fail": "trial 2 A-v0 seed 1: exit code 1, ",
        "Refuse": "trial 3 A-v0 seed 1: exit code 2, ",
        "0.4": "no episode ended",
    }
    for rate, reason in reasons.items():
        assert trials[rate].state == TrialState.FAIL
        assert trials[rate].user_attrs["reason"].startswith(reason)
    assert "fake.py: such flags cannot work" in done.stderr

    command = f"{sys.executable} {fake.path} --learning-rate 0.2 --env-id"
    assert f"{command} A-v0\n{command} B-v0\n" in done.stdout
    assert (out / "fake_search.md").read_text() in done.stdout
    assert (out / "fake_search.png").read_bytes().startswith(b"\x89PNG")
    assert len(pd.read_csv(out / "fake_search_trials.csv")) == 5
    checked = pd.read_csv(out / "fake_search_check.csv")
    means = checked.groupby(["flags", "env_id"])["score"].agg(["mean", "count"])
    assert means["mean"].to_list() == [2, 2, 8, 8] and set(means["count"]) == {2}
    assert set(checked["seed"]) == {1001, 1002}

    before = sorted(fake.study.glob("*/*/starts.txt"))
    again = fake.search(rates, "--trials", "5", *flags)
    assert again.returncode == 0 and len(fake.trials()) == 5
    assert sorted(fake.study.glob("*/*/starts.txt")) == before


def test_a_check_in_which_no_episode_ends_is_told_in_one_line(fake):
    fake.logs("0.1", 4.0)
    (fake.folder / "events-None").unlink()  # the defaults log nothing
    done = fake.search("0.1", "--trials", "1", "--num-seeds", "1", "--check-seeds", "1")
    assert done.returncode == 1
    told = "warning: no check: no episode ended in 2 of its 4 runs; train longer"
    assert done.stderr.splitlines()[-1] == told


@pytest.mark.parametrize(("seeds", "state"), [(1, TrialState.COMPLETE), (2, TrialState.PRUNED)])
def test_a_trial_below_the_median_ends_after_its_first_seed(fake, seeds, state):
    """Unless that is its last one: it is complete then."""
    for rate, episodic_return in (("0.1", 8.0), ("0.2", 9.0), ("0.3", 1.0)):
        fake.logs(rate, episodic_return)
    fake.enqueue("0.1,0.2,0.1,0.2,0.1,0.3")
    assert fake.search("0.1,0.2,0.3", "--trials", "6", "--num-seeds", str(seeds)).returncode == 0
    assert fake.trials()["0.3"].state == state
    assert len(fake.folders("0.3")) == 2, "two environments, one seed"
    made = [len(starts(folder)) for folder in fake.folders("0.1")]
    assert made == [1] * 2 * seeds, "not made again by the other trials with these flags"


@pytest.mark.parametrize(
    ("signum", "heard"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGKILL, True)]
)
def test_a_stopped_search_goes_on_where_it_was(fake, signum, heard, tmp_path):
    """After SIGKILL its runs go on alone, and the next search waits for them.

    heard: whether anybody reads what is printed; Ctrl-C in `| tee log` ends tee as well.
    """
    fake.logs("Slow", 5.0)
    fake.logs("0.1", 4.0)
    fake.enqueue("0.1,Slow")
    flags = ("--trials", "2", "--num-seeds", "1")
    words = [sys.executable, str(BENCHMARK / "tune.py"), *fake.words("Slow,0.1", *flags)]
    process = processes.start(words, tmp_path)
    wait_until(lambda: list(fake.study.glob("*Slow/*/starts.txt")))
    if not heard:
        process.stdout.close()
    process.send_signal(signum)
    if not heard:
        process.wait(20)
    elif signum == signal.SIGINT:
        code, output, _ = finish(process)
        assert code == 130 and "the same command again continues from here" in output
    else:
        finish(process)
    (folder,) = fake.folders("Slow")
    letting_go = threading.Timer(2.0, fake.let_go)
    letting_go.start()
    again = fake.search("Slow,0.1", *flags)
    letting_go.join()
    assert again.returncode == 0, again.stderr
    trials = fake.trials()
    assert {trial.state for trial in trials.values()} == {TrialState.COMPLETE}
    assert trials["Slow"].value == pytest.approx(0.375)
    assert fake.folders("Slow")[0] == folder, "not a new run"
    assert len(starts(folder)) == (2 if signum == signal.SIGINT else 1)
    assert len(fake.folders("0.1")) == 2


def test_a_search_of_which_no_trial_ends_well_fails(fake):
    done = fake.search("Fail1,Fail2", "--trials", "2")
    assert done.returncode == 1 and "no trial has ended well" in done.stderr


def test_other_settings_or_an_edited_script_need_another_study(fake):
    assert fake.search("0.1,0.2", "--trials", "1").returncode == 1
    other = fake.search("0.1,0.3", "--trials", "1")
    assert other.returncode == 2 and "has a search with another space" in other.stderr
    fake.path.write_text(fake.path.read_text() + "# edited\n")
    edited = fake.search("0.1,0.2", "--trials", "1")
    assert edited.returncode == 2 and "has a search with another script" in edited.stderr


def test_no_check_of_a_script_that_was_edited_during_the_search(fake, capsys):
    search = SimpleNamespace(script=fake.path, source=b"as it was")
    with pytest.raises(SystemExit, match="2"):
        tune.run_check(search, [], None)
    assert "fake.py has been edited" in capsys.readouterr().err


def test_two_searches_in_one_folder_are_refused(fake):
    fake.study.mkdir()
    with open(fake.study / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = fake.search("0.1,0.2")
    assert done.returncode == 2 and "another process is searching" in done.stderr


def test_a_space_becomes_flags():
    space = ("num-steps=32,64", "norm-adv=yes,no", "epochs=int:1:10", "b=-1:0.5", "lr=log:1e-4:1")
    params = {"num-steps": "32", "norm-adv": "no", "epochs": 3, "b": -0.5, "lr": 0.000123456}
    flags = tune.suggest(optuna.trial.FixedTrial(params), space)
    expected = "--num-steps 32 --no-norm-adv --epochs 3 --b -0.5 --lr 0.0001235"
    assert shlex.join(flags) == expected
    with_flag = tune.suggest(optuna.trial.FixedTrial({"norm-adv": "yes"}), ("norm-adv=yes,no",))
    assert with_flag == ["--norm-adv"]
    drawn = optuna.create_study().ask()
    tune.suggest(drawn, space)
    assert drawn.distributions["lr"].log and not drawn.distributions["b"].log
    assert (drawn.distributions["epochs"].low, drawn.distributions["epochs"].high) == (1, 10)


def test_folders_of_many_flags_have_names_that_file_systems_take(fake):
    words = {"command": f"python {fake.path}", "target_scores": ("A-v0=0:10",), "space": ()}
    search = tune.Search(tune.Args(**words, study=fake.study))
    folders = [search.folder([f"--flag-{n}" for n in range(count)]) for count in (2, 98, 99)]
    assert folders[0].name == "flag-0_flag-1" and len(set(folders)) == 3
    assert max(len(folder.name) for folder in folders) <= 255


def test_the_check_is_welchs_interval_over_seeds():
    rng = np.random.default_rng(0)
    seeds = np.arange(5)
    rows = []
    for flags, mean in (("defaults", 0.3), ("tuned", 0.5)):
        for env_id in ("A-v0", "B-v0"):
            scores = rng.normal(mean, 0.1, 5)
            columns = {"env_id": env_id, "seed": seeds, "score": scores, "normalized": scores}
            rows.append(pd.DataFrame(columns).assign(flags=flags))
    table = pd.concat(rows)
    means = table.groupby(["flags", "seed"])["normalized"].mean()
    test = stats.ttest_ind(means["tuned"], means["defaults"], equal_var=False)
    low, high = test.confidence_interval()
    sentence, *_ = tune.check_lines(table)
    assert f"5 fresh seeds: {means['tuned'].mean() - means['defaults'].mean():+.3f}" in sentence
    assert f"(95 %: {low:+.3f} to {high:+.3f})" in sentence
