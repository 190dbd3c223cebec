"""The tasks of a benchmark as jobs of SLURM.

Part of run.py, which imports it for --launcher slurm. submitit submits the jobs; what they do is
pickled with its code, so that a job needs neither this file nor its folder on the path.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import submitit
import tasks as tasks_module
from console import Progress, Signals
from submitit.helpers import DelayedSubmission
from tasks import Children, Result, Task, find_run, run_task

POLL = 0.2  # seconds between two looks at the results
ASK = 5.0  # seconds between two questions to SLURM
ASK_STOPPING = 1.0  # the same once the runs are to stop
LOST = 30.0  # seconds after which a job that SLURM does not list any more has lost its result
WARNING = 120  # seconds before its time limit at which a job is told to save


@dataclass(frozen=True)
class Resources:
    """What the jobs ask for."""

    partition: str | None  # SLURM's default if there is none
    gpus: int  # of a job
    cpus: int  # of a job
    hours: float  # time limit of a job
    jobs: int  # at a time


class Refused(Exception):
    """SLURM does not take the jobs; the text says why, in one line."""


class Job:
    """What a job does on its machine."""

    def __init__(self) -> None:
        self.children: Children | None = None  # made on that machine

    def __call__(self, task: Task, stop: Path) -> Result:
        """Bring the task to its end; the file `stop` says that it is to save what it has."""
        # The warning before the time limit goes to all processes of a job. Only this one knows it:
        # what it starts inherits that the signal is blocked.
        warning = getattr(signal, f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}")
        children = self.children = Children()

        def run() -> Result:
            signal.pthread_sigmask(signal.SIG_BLOCK, {warning})
            return run_task(task, children)

        with ThreadPoolExecutor(1) as pool:  # so that signals find the main thread idle
            future = pool.submit(run)
            while not wait([future], timeout=1).done:
                if stop.exists() and not children.signum:
                    children.stop(signal.SIGTERM)
            return future.result()

    def checkpoint(self, task: Task, stop: Path) -> DelayedSubmission:
        """Called before the time is over; the run saves, and what is returned goes on with it."""
        assert self.children is not None, "the job is running"
        self.children.stop(signal.SIGTERM)
        while self.children.processes:
            time.sleep(0.1)
        return DelayedSubmission(Job(), task, stop)


def submit(todo: list[Task], resources: Resources, folder: Path, stop: Path) -> dict[Task, Any]:
    """Submit the tasks as one array; submitit's job of each. Raises Refused.

    folder: of submitit's files; stop: file that will tell the jobs to save and end.
    """
    for module in (tasks_module, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    executor = submitit.SlurmExecutor(folder, max_num_timeout=10_000)
    executor.update_parameters(
        job_name="benchmark",
        partition=resources.partition,
        time=max(1, round(resources.hours * 60)),
        cpus_per_task=resources.cpus,
        gpus_per_node=resources.gpus or None,
        array_parallelism=resources.jobs,
        signal_delay_s=WARNING,
    )
    try:
        jobs = executor.map_array(Job(), todo, [stop] * len(todo))
    except (submitit.core.utils.FailedJobError, OSError) as error:
        last = str(error).strip().splitlines()[-1]
        raise Refused(last.removeprefix("sbatch: error: ")) from error
    return dict(zip(todo, jobs, strict=True))


def listed_jobs(array: str) -> dict[str, str] | None:
    """State (R, PD ...) of each job of an array that has not ended; None if SLURM does not say."""
    words = ["squeue", "--noheader", "--array", "--format=%i %t", f"--jobs={array}"]
    answer = subprocess.run(words, capture_output=True, text=True)
    if answer.returncode and "Invalid job id" not in answer.stderr:  # known no more: it has ended
        return None
    return dict(line.split() for line in answer.stdout.splitlines())


def job_result(job: Any) -> Result:
    """What `run_task` returned in a job, or why it did not."""
    try:
        return job.result()
    except Exception as error:  # of submitit, with the traceback of the job as text
        return Result("failed", str(error).strip().splitlines()[-1])


class Queue:
    """What SLURM says about the jobs of an array, asked now and then."""

    def __init__(self, jobs: dict[Task, Any]):
        self.array = next(iter(jobs.values())).job_id.partition("_")[0]
        self.states: dict[str, str] = {}  # by job id
        self.missing: dict[Task, float] = {}  # not listed any more, since when
        self.asked = -60.0

    def look(self, jobs: dict[Task, Any], pause: float) -> None:
        """Ask SLURM about the jobs that have no result yet, if that was longer ago than `pause`."""
        now = time.monotonic()
        if now - self.asked <= pause:
            return
        self.asked = now
        listed = listed_jobs(self.array)
        if listed is None:
            return
        self.states = listed
        for task, job in jobs.items():
            if job.job_id in self.states:
                self.missing.pop(task, None)
            else:
                self.missing.setdefault(task, now)

    def running(self, jobs: dict[Task, Any]) -> list[Task]:
        """The tasks that are being worked on."""
        return [task for task, job in jobs.items() if self.states.get(job.job_id) == "R"]

    def cancel(self, *which: str) -> None:
        """Cancel the array's jobs; which: scancel's flags that choose among them."""
        subprocess.run(["scancel", *which, self.array], capture_output=True)

    def verdict(self, task: Task, job: Any, stopping: bool) -> Result | None:
        """How a task ended, None if it has not; stopping: the user wants the jobs to end."""
        if job.paths.result_pickle.exists():
            return job_result(job)
        if task not in self.missing:
            return None
        if stopping:
            return Result("stopped")
        if time.monotonic() - self.missing[task] > LOST:
            reason = f"job {job.job_id} ended without a result, see {job.paths.stderr}"
            return Result("failed", reason)
        return None


def wait_for(jobs: dict[Task, Any], stop: Path, signals: Signals, progress: Progress) -> None:
    """Report the results of the jobs until all have one, and answer the user's signals.

    stop: the file that tells the jobs to save and end.
    """
    queue = Queue(jobs)
    progress.say(f"{len(jobs)} jobs of array {queue.array}; {stop.parent}")
    while jobs:
        time.sleep(POLL)
        queue.look(jobs, ASK_STOPPING if signals.answered else ASK)
        for task in queue.running(jobs):
            progress.since.setdefault(task, time.monotonic())
        for task, job in list(jobs.items()):
            result = queue.verdict(task, job, stopping=signals.answered > 0)
            if result is not None:
                progress.report(task, result)
                del jobs[task]
        demand = signals.demand()
        if demand == "save":
            stop.touch()  # scancel's signal would reach every process of a job, more than once
            progress.say("stopping: the runs save what they have; again to kill them")
            queue.cancel("--state=PENDING")
        elif demand == "kill":
            queue.cancel()
        progress.draw(queue.running(jobs))


def run_in_slurm(tasks: list[Task], resources: Resources, runs_dir: Path, signals: Signals) -> int:
    """Submit the tasks as an array and wait for it; returns the exit code. Raises Refused."""
    progress = Progress(tasks)
    todo = []
    for task in tasks:
        if find_run(task)[1]:
            progress.report(task, Result("skipped"))
        else:
            todo.append(task)
    if todo:
        folder = runs_dir.absolute() / "logs" / "slurm"
        stop = folder / f"stop-{time.time_ns()}"
        jobs = submit(todo, resources, folder, stop)
        wait_for(jobs, stop, signals, progress)
        stop.unlink(missing_ok=True)
    return progress.conclude(signals.received)
