"""The runs of run.py as an array of SLURM jobs.

A job runs the same command as on this machine. Two minutes before its time is over SLURM sends
SIGTERM to the run, which saves and ends; the job then puts itself back into the queue, and
`--resume auto` goes on. SLURM does the same with a job whose machine is lost or given to another
user.
"""

import hashlib
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from common import fail

if TYPE_CHECKING:
    from run import Args, Task

# What `srun` has started gets the signal, the job's shell does not; scancel ends both, and nothing
# is queued again. A trap runs when the command has ended, with whatever exit code: torchrun's is 1.
# srun must be told the number of CPUs: since SLURM 22.05 it does not take over the job's.
TEMPLATE = """\
#!/bin/bash
#SBATCH --job-name=benchmark
#SBATCH --array=0-{last}%{workers}
#SBATCH --cpus-per-task={cpus}
#SBATCH --time={minutes}
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output="{folder}/%A_%a.log"
{more}
export OMP_NUM_THREADS=${{OMP_NUM_THREADS:-{cpus}}}
commands=(
{commands}
)
srun --cpus-per-task={cpus} bash -c "trap 'exit 143' TERM; ${{commands[$SLURM_ARRAY_TASK_ID]}}"
exit_code=$?
if [ $exit_code = 143 ]; then
    exec scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit $exit_code
"""


def array_script(tasks: "list[Task]", args: "Args", folder: Path) -> str:
    """The batch script of an array with a job for each task. folder: of the logs."""
    more = []
    if args.partition:
        more.append(f"#SBATCH --partition={args.partition}")
    if args.gpus:
        more.append(f"#SBATCH --gpus-per-node={args.gpus}")
    commands = []
    for task in tasks:  # each writes the log that it has on this machine
        log = shlex.quote(str(task.log.absolute()))
        # Fails if the script has been edited meanwhile, perhaps days after it was submitted.
        line = shlex.quote(f"{hashlib.sha256(task.source).hexdigest()}  {task.script}")
        check = f"sha256sum --check --quiet <<< {line}"
        command = f"{{ {check} && {shlex.join(task.command)}; }} >> {log} 2>&1"
        commands.append(f"    {shlex.quote(command)}")
    return TEMPLATE.format(
        last=len(tasks) - 1,
        workers=args.workers,
        cpus=args.cpus,
        minutes=max(1, round(args.hours * 60)),
        folder=folder,
        more="\n".join(more),
        commands="\n".join(commands),
    )


def sbatch(*words: str) -> str:
    """Submit a job; returns its number. Fails with SLURM's own words."""
    done = subprocess.run(["sbatch", "--parsable", *words], capture_output=True, text=True)
    if done.returncode:
        fail(done.stderr.strip())
    return done.stdout.strip().partition(";")[0]


def submit(tasks: "list[Task]", args: "Args", drawing: list[str]) -> int:
    """Submit the tasks, and a job that draws them when all have ended; returns the exit code."""
    if shutil.which("sbatch") is None:
        fail("--launcher slurm: there is no sbatch on this machine")
    folder = args.runs_dir.absolute() / "logs" / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"array-{time.time_ns()}.sh"
    script.write_text(array_script(tasks, args, folder))
    array = sbatch(str(script))
    print(f"{len(tasks)} runs are jobs of array {array}; their logs: {args.runs_dir}/logs")
    if drawing:
        words = [f"--dependency=afterany:{array}", f"--output={folder}/plot-{array}.log"]
        words += [f"--partition={args.partition}"] if args.partition else []
        print(f"job {sbatch(*words, f'--wrap={shlex.join(drawing)}')} draws them")
    print(f"to watch them: squeue --array -j {array}; to save and stop: scancel {array}")
    return 0
