"""The search for flags, driven with a script that only pretends to train."""

import csv
import fcntl
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import plot
import pytest
import runs as run_folders
import stats as intervals
import tuning
import tuning_results
import tyro
from helpers.benchmark_runs import BENCHMARK, FakeScript, run_program, starts, stops
from helpers.command_line import finish, wait_until
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from scipy import stats
from test_plot import episodes, make_run
from torch.utils.tensorboard import SummaryWriter

ENVS = ("A-v0", "B-v0")
LAST_STEP = 1000  # that the script claims to train to


class FakeSearch(FakeScript):
    """Searches over the learning rate of a script that pretends to train."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.study = folder / "study"
        self.logs("None", 2.0)

    def logs(self, rate: str, episodic_return: float, until: int = LAST_STEP) -> None:
        """With this learning rate all episodes have this return; there is one every 10 steps."""
        writer = SummaryWriter(str(self.folder / "writer"))
        for step in range(10, until + 1, 10):
            writer.add_scalar("charts/episodic_return", episodic_return, step)
        writer.close()
        (written,) = (self.folder / "writer").iterdir()
        shutil.move(written, self.folder / f"events-{rate}")

    def words(self, rates: str, *flags: str) -> list[str]:
        """What follows tune.py on its command line."""
        command = ["--command", f"{sys.executable} {self.path}"]
        targets = ["--target-scores", "A-v0=0:10", "B-v0=10:-10"]
        space = ["--space", f"learning-rate={rates}"]
        return [*command, *targets, *space, "--study", str(self.study), *flags]

    def search(self, rates: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """The program in this process, until it ends."""
        return run_program("tune.py", *self.words(rates, *flags))

    def enqueue(self, rates: str, *flags: str) -> None:
        """The search will try the learning rates in this order."""
        args = tyro.cli(tuning.Args, args=self.words(rates, *flags))
        self.study.mkdir()
        study, _ = tuning.open_study(args)
        for rate in rates.split(","):
            study.enqueue_trial({"learning-rate": rate})

    def trials(self) -> dict[str, optuna.trial.FrozenTrial]:
        """The trials that have begun, by learning rate, as they stand in the SQLite file."""
        study = optuna.load_study(study_name="tune", storage=f"sqlite:///{self.study}/study.db")
        begun = [trial for trial in study.trials if trial.state != TrialState.WAITING]
        found = [trial for trial in begun if tuning.DOUBLE not in trial.user_attrs]
        assert len({trial.params["learning-rate"] for trial in found}) == len(found)
        return {trial.params["learning-rate"]: trial for trial in found}

    def folders(self, trial: optuna.trial.FrozenTrial) -> list[Path]:
        """The run folders of a trial, in the order in which they were begun."""
        folders = [p.parent for p in self.study.glob(f"trial-{trial.number:04}/*/args.json")]
        return sorted(folders, key=lambda folder: folder.name.rpartition("__")[2])


@pytest.fixture
def fake(tmp_path: Path) -> FakeSearch:
    return FakeSearch(tmp_path)


# ------ whole searches ------


def test_a_search_finds_the_best_flags_and_tells_how_all_trials_ended(fake, tmp_path):
    """Two workers; the score is the mean of A's return / 10 and (10 - B's return) / 20."""
    for rate, episodic_return in (("0.1", 4.0), ("0.2", 8.0), ("0.3", 6.0)):
        fake.logs(rate, episodic_return)
    rates = "0.1,0.2,0.3,Fail,Refuse,0.4"  # 0.4 logs nothing
    flags = ("--workers", "2", "--check-seeds", "2", "--plot", str(tmp_path / "out"))
    done = fake.search(rates, *flags, "--trials", "5", "--prune-below", "0")
    assert done.returncode == 0, done.stderr
    trials = fake.trials()
    assert trials.keys() == set(rates.split(",")), "each once, though there are two workers"
    # By hand: (4 / 10 + (10 - 4) / 20) / 2 and so on.
    scores = {rate: trials[rate].values[0] for rate in ("0.1", "0.2", "0.3")}
    assert scores == pytest.approx({"0.1": 0.35, "0.2": 0.45, "0.3": 0.40})
    assert trials["Fail"].state == trials["0.4"].state == TrialState.FAIL
    reason = trials["Fail"].user_attrs["reason"]
    assert reason == "A-v0 seed 1: exit code 1: RuntimeError: the loss is not finite"
    assert trials["0.4"].user_attrs["reason"] == "A-v0 seed 1: no episode ended"
    assert trials["Refuse"].state == TrialState.PRUNED
    assert "fake.py: such flags cannot work" in trials["Refuse"].user_attrs["refused"]
    assert f"FAILED      trial {trials['Fail'].number}" in done.stderr and reason in done.stderr

    assert "5 of 5 trials: 3 done, 0 ended early, 2 failed, 1 refused besides" in done.stdout
    assert f"best: trial {trials['0.2'].number}, score 0.450; defaults 0.300" in done.stdout
    alike = "+0.150 (no interval: the scores are all alike), normalized. In the table ± is half a"
    assert f"{alike} 95 % interval.\n\n| environment |" in done.stdout
    assert "Fresh seeds leave open whether" in done.stdout
    assert "| A-v0 | 2.0 ± 0.0 | 8.0 ± 0.0 |" in done.stdout
    assert "| all, normalized | 0.300 ± 0.000 | 0.450 ± 0.000 |" in done.stdout
    command = f"{sys.executable} {fake.path} --learning-rate 0.2 --env-id"
    assert f"{command} A-v0\n{command} B-v0\n" in done.stdout
    checked = sorted((fake.study / "check").glob("*/*/starts.txt"))
    seeds = Counter(path.parent.name.split("__")[2] for path in checked)
    assert seeds == {"1001": 4, "1002": 4}, "two environments with the defaults and the best"

    with open(fake.study / "trials.csv") as file:
        rows = {row["learning-rate"]: row for row in csv.DictReader(file)}
    assert rows["0.3"]["outcome"] == "COMPLETE" and float(rows["0.3"]["score"]) == 0.4
    assert float(rows["0.3"]["B-v0 seed 1"]) == 6 and rows["0.3"]["reason"] == ""
    assert rows["Refuse"]["outcome"] == "REFUSED" and "such flags" in rows["Refuse"]["reason"]
    assert (tmp_path / "out" / "fake_search.png").read_bytes().startswith(b"\x89PNG")
    written = (tmp_path / "out" / "fake_search.md").read_text()
    assert command in written
    assert "Not drawn" not in written

    before = sorted(fake.study.glob("*/*/starts.txt"))
    again = fake.search(rates, "--trials", "5")
    assert again.returncode == 0 and "5 of 5 trials: 3 done" in again.stdout
    assert sorted(fake.study.glob("*/*/starts.txt")) == before
    more = fake.search(rates, "--trials", "9")
    assert more.returncode == 0 and fake.trials().keys() == set(rates.split(","))

    other = fake.search("0.1,0.2", "--trials", "9")
    assert other.returncode == 2 and "has a search with another space" in other.stderr


def test_a_space_that_has_been_searched_ends_the_search(fake):
    """What it has found is checked, and nothing more is drawn meanwhile."""
    fake.logs("0.1", 4.0)
    fake.logs("0.2", 8.0)
    done = fake.search("0.1,0.2", "--trials", "5", "--check-seeds", "2", "--workers", "2")
    assert done.returncode == 0 and done.stderr == ""
    assert "no new flags in 30 draws: the search ends here" in done.stdout
    assert "2 of 5 trials: 2 done" in done.stdout
    assert "Tuned flags against defaults, 2 fresh seeds: +0.150" in done.stdout
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{fake.study}/study.db")
    doubles = [trial for trial in study.trials if tuning.DOUBLE in trial.user_attrs]
    assert len(doubles) < 2 * tuning.DRAWS, "drawn in vain once, and some before the last new one"


def test_a_script_that_is_edited_meanwhile_ends_the_search(fake):
    """Its trials would not be comparable; the one that was to go on is left for the next call."""
    for rate in ("0.1", "0.2"):
        fake.logs(rate, 4.0)
    source = fake.path.read_text()
    edit = f"    if args.learning_rate:\n        HERE.write_text({source!r})\n"
    fake.path.write_text(source.replace("    args = parse()\n", f"    args = parse()\n{edit}"))
    done = fake.search("0.1,0.2", "--trials", "2")
    assert done.returncode == 1
    assert done.stderr.endswith(f"FAILED   {fake.path} has been edited meanwhile\n")
    assert len(list(fake.study.glob("trial-*/*/starts.txt"))) == 1
    refused = fake.search("0.1,0.2", "--trials", "2")
    assert refused.returncode == 2 and "has a search with another script" in refused.stderr


def test_flags_that_are_worse_than_the_defaults_do_not_win(fake, tmp_path):
    """Nothing is checked then, and the commands are those without any of the space."""
    fake.logs("0.1", 1.0)
    fake.logs("0.2", 2.0)  # as good as the defaults
    flags = ("--trials", "2", "--check-seeds", "2", "--plot", str(tmp_path / "out"))
    done = fake.search("0.1,0.2", *flags)
    assert done.returncode == 0 and done.stderr == "" and not (fake.study / "check").exists()
    commands = "".join(f"{sys.executable} {fake.path} --env-id {env_id}\n" for env_id in ENVS)
    sentence = "No trial was better than the defaults, which are:\n\n"
    assert done.stdout.partition(str(tmp_path / "out"))[0].endswith(f"{sentence}{commands}")
    written = (tmp_path / "out" / "fake_search.md").read_text()
    assert written.endswith(f"{sentence}```bash\n{commands}```\n")


@pytest.mark.parametrize(
    ("scores", "sentence", "flags"),
    [
        ([8.0, 9.0, 10.0], "The best flags, with fresh seeds better", ["--learning-rate", "0.1"]),
        ([5.0, 7.0, 6.0], "Fresh seeds leave open whether", ["--learning-rate", "0.1"]),
        ([1.0, 2.0, 3.0], "With fresh seeds the best flags were not better", []),
    ],
)
def test_fresh_seeds_decide_which_flags_are_shown(scores, sentence, flags, fake):
    fake.logs("0.1", 8.0)
    assert fake.search("0.1,0.2", "--trials", "2").returncode == 0
    args = tyro.cli(tuning.Args, args=fake.words("0.1,0.2"))
    search = tuning.Search(args, *tuning.open_study(args))
    search.defaults.scores = dict.fromkeys(search.defaults.tasks, 2.0)
    assert search.winner() is not None
    # 0 to 10 in one environment, 10 to -10 in the other: 0.1 and -0.05 for a point of return.
    of_best = {"A-v0": np.array(scores), "B-v0": np.array([2.0, 2.0, 2.0])}
    of_defaults = {"A-v0": np.array([2.0, 4.0, 6.0]), "B-v0": np.array([2.0, 2.0, 2.0])}
    check = tuning_results.Check(of_defaults, of_best)
    said, params = tuning_results.choice(search, check)
    assert said.startswith(sentence) and tuning.flags(params) == flags
    said, params = tuning_results.choice(search, None)
    assert said == "The best flags:" and tuning.flags(params) == ["--learning-rate", "0.1"]
    # By hand: variances of 1 and 4 in points, 5 / 3 of the difference, and Welch's 50 / 17.
    difference = (np.mean(scores) - 4) / 20
    half = math.sqrt(5 / 3) / 20 * stats.t.ppf(0.975, 50 / 17)
    expected = (difference, difference - half, difference + half)
    assert tuning_results.check_difference(search, check) == pytest.approx(expected)


@pytest.mark.filterwarnings("error")
def test_scores_that_are_all_alike_have_no_interval():
    alike = np.full(3, 0.1)
    value, low, high = intervals.welch(alike + 0.5, alike)
    assert value == pytest.approx(0.5) and math.isnan(low) and math.isnan(high)
    assert intervals.welch(alike, alike) == (0, 0, 0)
    value, low, high = intervals.welch(alike, np.array([0.3, 0.1, 0.2]))
    assert value == pytest.approx(-0.1) and low < value < high
    assert math.isnan(intervals.welch(alike[:1], alike).low)


def test_seeds_of_the_check_are_fresh(fake):
    def seeds(*flags: str) -> list[int]:
        args = tyro.cli(tuning.Args, args=fake.words("0.1", "--check-seeds", "3", *flags))
        return list(tuning_results.check_seeds(args))

    assert seeds() == [1001, 1002, 1003]
    assert seeds("--start-seed", "1000", "--num-seeds", "2") == [1002, 1003, 1004]


def test_the_flag_that_makes_the_difference_is_the_important_one():
    """Of two flags only one changes the score; too few trials or one flag say nothing."""
    space = {name: FloatDistribution(0, 1) for name in ("gamma", "ent-coef")}
    study = optuna.create_study(direction="maximize")
    rng = np.random.default_rng(0)

    def completed() -> list[Any]:
        return study.get_trials(states=[TrialState.COMPLETE])

    search = SimpleNamespace(study=study, space=space, completed=completed)
    for number in range(30):
        assert number >= 10 or tuning_results.importances(search) == {}
        params = {name: float(rng.random()) for name in space}
        value = 3 * params["gamma"]
        trial = optuna.trial.create_trial(params=params, distributions=space, value=value)
        study.add_trial(trial)
    found = tuning_results.importances(search)
    assert sum(found.values()) == pytest.approx(1) and found["gamma"] > 0.8
    _, axes = plot.plt.subplots()
    tuning_results.draw_importances(axes, found)
    assert [bar.get_width() for bar in axes.patches] == [found["ent-coef"], found["gamma"]]
    search.space = {"gamma": space["gamma"]}
    assert tuning_results.importances(search) == {}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (0.1, "Fresh seeds leave open whether the best flags are better than the defaults: "),
        (-0.1, "With fresh seeds the best flags were not better than the defaults"),
        (0.0, "With fresh seeds the best flags were not better than the defaults"),
    ],
)
def test_without_an_interval_it_is_open_which_flags_are_better(value, sentence, monkeypatch):
    difference = intervals.Difference(value, math.nan, math.nan)
    monkeypatch.setattr(tuning_results, "check_difference", lambda *_: difference)
    search = SimpleNamespace(winner=lambda: SimpleNamespace(params={"gamma": 0.9}))
    said, _ = tuning_results.choice(search, SimpleNamespace())
    assert said.startswith(sentence)


def test_a_trial_that_is_behind_is_stopped(fake, monkeypatch):
    """In the middle of its first run: it saves, its second run does not begin, others are left."""
    monkeypatch.setattr(tuning, "STARTUP", 2)
    for rate, episodic_return in (("0.1", 4.0), ("0.2", 8.0)):
        fake.logs(rate, episodic_return)
    fake.logs("Slow", 1.0, until=LAST_STEP // 2)
    fake.logs("0.3", 6.0)
    fake.enqueue("0.1,0.2,Slow,0.3")
    done = fake.search("0.1,0.2,Slow,0.3", "--trials", "4")
    assert done.returncode == 0, done.stderr
    behind = fake.trials()["Slow"]
    assert behind.state == TrialState.PRUNED
    # By hand: a return of 1 is 0.1 in A-v0, and the run of B-v0 does not count as yet.
    assert behind.intermediate_values == pytest.approx({place: 0.1 for place in range(1, 6)})
    (folder,) = fake.folders(behind)
    assert stops(folder) == "1" and "A-v0" in folder.name
    assert "ended early trial 2" in done.stdout
    assert fake.trials()["0.3"].state == TrialState.COMPLETE
    values = fake.trials()["0.3"].intermediate_values
    assert values[10] == pytest.approx(0.6) and values[11] == pytest.approx((0.6 + 0.2) / 2)
    assert len(values) == 20


@pytest.mark.parametrize("shift", [0.0, -500.0], ids=["above 0", "below 0"])
def test_a_second_run_that_fails_ends_its_trial(fake, shift):
    """Whatever the sign of the scores, and though the first run was as good as those of others."""
    words = fake.words("0.1,0.2", "--num-seeds", "2")
    words[words.index("--target-scores") + 1 : words.index("B-v0=10:-10") + 1] = ["A-v0"]
    args = tyro.cli(tuning.Args, args=words)
    fake.study.mkdir()
    search = tuning.Search(args, *tuning.open_study(args))

    def trial(number: int) -> tuning.Candidate:
        return search.candidate(search.study.ask(search.space))

    def learn(candidate: tuning.Candidate, first: float, second: float) -> int:
        """Report both runs, which rise to these scores; at how many places it is behind."""
        behind = 0
        for end in (first, second):
            for place in range(1, tuning.PLACES + 1):
                search.judge.report(candidate, place, shift + 100 + (end - 100) * place / 10)
                behind += search.is_behind(candidate)
            candidate.scores[candidate.task] = shift + end
        return behind

    for number in range(tuning.STARTUP + 1):
        candidate = trial(number)
        assert learn(candidate, 370 + number, 370 + number) == 0, "as good as those before it"
        candidate.pruned = False
        search.conclude(candidate)
    values = search.completed()[0].intermediate_values
    assert values[20] == pytest.approx(shift + 375) and values[10] == pytest.approx(shift + 375)
    assert learn(trial(9), 374, 100) == 10


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_search_goes_on_where_it_was(fake, signum, tmp_path):
    """After SIGKILL its runs go on alone, and the next search waits for them."""
    fake.logs("Slow", 5.0)
    fake.logs("0.1", 4.0)
    fake.enqueue("Slow,0.1")
    words = fake.words("Slow,0.1", "--trials", "2")
    process = subprocess.Popen(
        [sys.executable, str(BENCHMARK / "tune.py"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    wait_until(lambda: list(fake.study.glob("trial-0000/*/starts.txt")))
    process.send_signal(signum)
    code, output, _ = finish(process)
    if signum == signal.SIGINT:
        assert code == 130 and "the same command again goes on from here" in output
    assert fake.trials()["Slow"].state == TrialState.RUNNING
    (folder,) = fake.folders(fake.trials()["Slow"])
    letting_go = threading.Timer(2.0, fake.let_go)
    letting_go.start()
    again = fake.search("Slow,0.1", "--trials", "2")
    letting_go.join()
    assert again.returncode == 0, again.stderr
    trials = fake.trials()
    assert {trial.state for trial in trials.values()} == {TrialState.COMPLETE}
    assert trials["Slow"].values[0] == pytest.approx(0.375)
    assert fake.folders(trials["Slow"])[0] == folder, "not a new run"
    resumed = [line for line in starts(folder) if "--resume" in line]
    assert len(resumed) == (signum == signal.SIGINT)


def test_a_search_that_is_stopped_while_it_waits_goes_on_later(fake, monkeypatch):
    """It waits for a run that another process has: one that a killed search has left."""
    fake.logs("0.1", 4.0)
    fake.enqueue("0.1,0.2")
    run_task = tuning.run_task

    def press(task: Any, children: Any) -> Any:
        result = run_task(task, children)
        if result.reason == tuning.BUSY and not children.signum:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(tuning, "run_task", press)
    log = fake.study / "trial-0000" / "logs" / "A-v0__fake__1.log"
    log.parent.mkdir(parents=True)
    with open(log, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        stopped = fake.search("0.1,0.2", "--trials", "1")
    assert stopped.returncode == 130 and stopped.stderr == ""
    assert fake.trials()["0.1"].state == TrialState.RUNNING
    again = fake.search("0.1,0.2", "--trials", "1")
    assert again.returncode == 0 and fake.trials()["0.1"].state == TrialState.COMPLETE


def test_two_searches_in_one_folder_are_refused(fake):
    fake.study.mkdir()
    with open(fake.study / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = fake.search("0.1,0.2")
    assert done.returncode == 2 and "another process is searching" in done.stderr
    assert [path.name for path in fake.study.iterdir()] == ["lock"]


def test_a_run_that_hangs_is_killed_and_its_trial_failed(fake, monkeypatch):
    """One that does not even listen to SIGTERM."""
    monkeypatch.setattr(tuning, "GRACE", 0.2)
    fake.logs("0.1", 4.0)
    fake.enqueue("Deaf,0.1", "--minutes", "0.06")
    done = fake.search("Deaf,0.1", "--trials", "2", "--minutes", "0.06")
    assert done.returncode == 0, done.stderr
    assert fake.trials()["0.1"].state == TrialState.COMPLETE
    hung = fake.trials()["Deaf"]
    assert hung.state == TrialState.FAIL
    assert hung.user_attrs["reason"] == "A-v0 seed 1: no end after 0.06 minutes"
    assert not any((folder / "agent.pt").exists() for folder in fake.folders(hung))


def test_a_run_that_is_killed_fails_its_trial(fake):
    fake.logs("0.1", 4.0)
    done = fake.search("Dies,0.1", "--trials", "2")
    assert done.returncode == 0 and fake.trials()["0.1"].state == TrialState.COMPLETE
    assert fake.trials()["Dies"].user_attrs["reason"].startswith("A-v0 seed 1: exit code -9: ")


def test_a_flag_that_the_script_has_not_ends_the_search(fake):
    """At once, and in tyro's words, which stand in a frame."""
    text = fake.path.read_text()
    begin = "    args = parse()\n"
    frame = """
╭─ Unrecognized options ────────────────╮
│ Unrecognized options: --learnign-rate │
│ ───────────────────────────────────── │
│ Perhaps you meant:                    │
│     --learning-rate FLOAT             │
╰───────────────────────────────────────╯
"""
    refuse = f"    if args.learning_rate:\n        print({frame!r})\n        sys.exit(2)\n"
    fake.path.write_text(text.replace(begin, begin + refuse))
    done = fake.search("0.1,0.2,0.3", "--trials", "3")
    words = "Unrecognized options: --learnign-rate Perhaps you meant: --learning-rate FLOAT"
    assert done.returncode == 1
    assert done.stderr == f"FAILED   A-v0 seed 1: exit code 2: {words}\n"
    assert len(fake.trials()) == 1


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ("Refuse1,Refuse2,Refuse3", "2 trials in a row did not run, the last: A-v0 seed 1: exit"),
        ("0.1,0.2", "defaults: A-v0 seed 1: no episode ended"),
    ],
)
def test_a_search_that_cannot_work_gives_up(fake, rates, message, monkeypatch):
    monkeypatch.setattr(tuning, "PATIENCE", 2)
    if "defaults" in message:
        (fake.folder / "events-None").unlink()
    done = fake.search(rates, "--trials", "3")
    assert done.returncode == 1 and f"FAILED   {message}" in done.stderr


# ------ scores and spaces ------


def events(*episodes: tuple[int, float]) -> Any:
    """What was logged of episodes: the step at which each ended, and its return."""
    return run_folders.Events([run_folders.Episode(step, 0.0, score) for step, score in episodes])


def test_scores_are_normalized_between_their_targets():
    targets = tuning.parse_targets(("CartPole-v1=0:500", "ns:Acrobot-v1=-500:-100", "Length=90:40"))
    cases = [("CartPole-v1", 125, 0.25), ("CartPole-v1", 600, 1.2), ("ns:Acrobot-v1", -400, 0.25)]
    for env_id, score, expected in [*cases, ("Length", 40, 1.0), ("Length", 100, -0.2)]:
        assert targets[env_id].normalized(score) == pytest.approx(expected)
    assert tuning.parse_targets(("A-v0",))["A-v0"].normalized(-7.5) == -7.5, "alone: as it is"


def test_score_of_a_run_is_that_of_its_end_or_of_all_its_steps():
    """After 100 episodes the rolling mean of the last 100 leaves the first ones behind."""
    log = events(*[(step, 0.0 if step <= 100 else 10.0) for step in range(1, 301)])
    assert tuning.score_at(log, 300, "final") == 10
    assert tuning.score_at(log, 150, "final") == pytest.approx(5)
    # The rolling mean: 0 up to step 100, a line up to 10 at step 200, 10 from there on.
    assert tuning.score_at(log, 300, "curve") == pytest.approx((0 + 5 + 10) / 3, abs=0.1)
    assert tuning.score_at(log, 200, "curve") == pytest.approx((0 + 5) / 2, abs=0.1)
    late = events((90, 3.0))
    assert tuning.score_at(late, 100, "curve") == 3, "steps before the first episode do not count"
    assert math.isnan(tuning.score_at(late, 89, "curve"))
    assert math.isnan(tuning.score_at(events(), 100, "final"))
    assert tuning.score_at(log, 150, "final", window=1) == 10, "each point is a mean already"


def test_space_of_all_kinds_and_the_flags_it_becomes():
    words = ("num-steps=32,64", "--norm_adv=yes,no", "a=int:1:10", "b=-1:0.5", "c=log:1e-4:1")
    assert tuning.parse_space(words) == {
        "num-steps": CategoricalDistribution(["32", "64"]),
        "norm-adv": CategoricalDistribution(["yes", "no"]),
        "a": IntDistribution(1, 10),
        "b": FloatDistribution(-1, 0.5),
        "c": FloatDistribution(1e-4, 1, log=True),
    }
    params = {"num-steps": "32", "norm-adv": "no", "a": 3, "c": 0.000123456}
    assert shlex.join(tuning.flags(params)) == "--num-steps 32 --no-norm-adv --a 3 --c 0.0001235"
    assert tuning.flags({"norm-adv": "yes"}) == ["--norm-adv"]


def test_help_explains_the_space_in_five_lines(fake):
    shown = run_program("tune.py", "--help").stdout
    after = shown.split("A search space is one word for each flag:\n")[1].split("\n\n")[0]
    examples = [line.split()[0] for line in after.splitlines()]
    assert len(examples) == 5 and len(tuning.parse_space(tuple(examples))) == 5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--space", "--space is empty"),
        ("--space lr", "--space: lr is not FLAG=A,B,C"),
        ("--space lr=0.1", "--space: lr=0.1 is not"),
        ("--space lr=0.1,0.1", "--space: lr=0.1,0.1 is not"),
        ("--space lr=1:0.1", "--space: lr=1:0.1 is not"),
        ("--space lr=0:nan", "--space: lr=0:nan is not"),
        ("--space lr=log:0:1", "--space: lr=log:0:1 is not"),
        ("--space lr=int:0.5:3", "--space: lr=int:0.5:3 is not"),
        ("--space lr=exp:0.5:3", "--space: lr=exp:0.5:3 is not"),
        ("--space lr=1,2 lr=3,4", "--space names lr twice"),
        ("--space seed=1,2", "must not contain seed"),
        ("--target-scores", "--target-scores is empty"),
        ("--target-scores A-v0 B-v0=0:1", "A-v0 needs =LOW:HIGH"),
        ("--target-scores A-v0=0", "A-v0=0 is not of the form"),
        ("--target-scores A-v0=1:1", "A-v0=1:1 is not of the form"),
        ("--target-scores A-v0=0:inf", "A-v0=0:inf is not of the form"),
        ("--target-scores A-v0=0:1 A-v0=0:2", "names A-v0 twice"),
        ("--command 'python nowhere.py'", "there is no file nowhere.py"),
        ("--command 'python FAKE --seed 3'", "must not contain --seed"),
        ("--env-flags 'A-v0=--learning_rate=1'", "--env-flags sets learning-rate of A-v0"),
        ("--space a=yes,no --env-flags 'A-v0=--b 1 --no-a'", "--env-flags sets a of A-v0"),
        ("--trials 0", "--trials must be at least 1"),
        ("--workers 0", "--workers must be at least 1"),
        ("--num-seeds 0", "--num-seeds must be at least 1"),
        ("--prune-below 100", "--prune-below must be 0 to 99"),
        ("--minutes 0", "--minutes must be above 0"),
        ("--check-seeds 1", "--check-seeds must be 0, or at least 2"),
        ("--study FAKE", "--study: "),
        ("--plot FAKE/results", "--plot: "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(fake, flags, message):
    words = [word.replace("FAKE", str(fake.path)) for word in shlex.split(flags)]
    words = [word.replace("python", sys.executable) for word in words]
    before = sorted(fake.folder.iterdir())
    refused = fake.search("0.1,0.2", *words)
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.startswith("error: ") and message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert sorted(fake.folder.iterdir()) == before, "nothing is created"


def test_a_file_that_is_no_study_is_refused(fake):
    fake.study.mkdir()
    (fake.study / "study.db").write_text("notes")
    refused = fake.search("0.1,0.2")
    assert refused.returncode == 2 and "study.db is not a file of SQLite" in refused.stderr


def test_the_table_shows_where_trials_are_and_who_leads(fake, monkeypatch, capsys):
    """On a terminal: the summary, a line for each running trial, the best ones."""
    fake.logs("0.1", 4.0)
    fake.logs("0.2", 8.0)
    assert fake.search("0.1,0.2", "--trials", "2").returncode == 0
    args = tyro.cli(tuning.Args, args=fake.words("0.1,0.2", "--trials", "2"))
    search = tuning.Search(args, *tuning.open_study(args))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((120, 20)))
    table = tuning.Table(search)
    candidate = tuning.Candidate("trial 2", {"learning-rate": 0.3}, search.defaults.tasks)
    candidate.current = 0.25
    table.running[candidate.task] = candidate
    table.draw([candidate.task])
    lines = capsys.readouterr().out.splitlines()
    best = fake.trials()["0.2"].number
    assert lines[0].startswith("2 of 2 trials: 2 done, 0 ended early, 0 failed, best 0.450")
    assert lines[1].startswith("  trial 2    0.250  A-v0 seed 1:  42%")
    assert lines[1].endswith("learning-rate 0.3")
    assert lines[3].split() == ["trial", str(best), "0.450", "learning-rate", "0.2"]


def test_a_flag_with_one_value_left_gets_no_panel():
    trials = [SimpleNamespace(params={"gamma": 0.9, "seed": n}) for n in (1, 2)]
    search = SimpleNamespace(space={"gamma": None, "seed": None}, completed=lambda: trials)
    assert tuning_results.varied(search) == ["seed"]


def test_the_text_names_the_flag_without_a_panel(fake, tmp_path):
    fake.logs("0.1", 8.0)
    fake.logs("0.2", 8.0)
    flags = ("--trials", "1", "--plot", str(tmp_path / "out"))
    assert fake.search("0.1,0.2", *flags).returncode == 0
    written = (tmp_path / "out" / "fake_search.md").read_text()
    assert (
        "Not drawn, for it has one value in all trials that ended well: learning-rate.\n" in written
    )


def test_a_band_of_two_seeds_may_leave_the_panel(tmp_path, monkeypatch):
    """Returns are 20 and 80, and their interval is 50 ± 381."""
    for seed, value in ((1001, 20.0), (1002, 80.0)):
        part = {"start": 0, "episodes": episodes(np.full(300, value)), "last": (3000, 180.0)}
        make_run(tmp_path, "A-v0", seed, [part])
    tasks = [SimpleNamespace(env_id="A-v0", seed=seed) for seed in (1001, 1002)]
    search = SimpleNamespace(
        args=SimpleNamespace(check_seeds=2, start_seed=1, num_seeds=1, metric=None),
        completed=lambda: [SimpleNamespace(number=0, params={})],
        tasks=lambda *_: tasks,
    )
    monkeypatch.setattr(
        tuning_results, "find_run", lambda task: (next(tmp_path.glob(f"*__{task.seed}__*")), True)
    )
    axes = plot.plt.figure().subplots()
    tuning_results.draw_check(axes, search, "A-v0")
    low, high = axes.get_ylim()
    assert 10 < low < 20 and 80 < high < 90
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() > 400
