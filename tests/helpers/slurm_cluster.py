"""A SLURM cluster of one machine, started from Debian's packages munge and slurm-wlm for a test."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from helpers.command_line import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
# What is not said here has SLURM's default. Without cred_expire a job that was put back into the
# queue would wait for two minutes.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=cpu Nodes={host} MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={host} MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def why_not() -> str:
    """Why no cluster can be started here; empty if nothing is known to be in the way."""
    missing = [program for program in PROGRAMS if which(program) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install slurm-wlm"
    return "" if os.geteuid() == 0 else "slurmd needs root"


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Environment of a cluster with two partitions, none of them the default, and four CPUs.

    folder: an empty one, for the logs as well.
    """
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=host, ports=free_ports(2), user="root", folder=folder))
    (key := folder / "munge.key").write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    environment = {**os.environ, "SLURM_CONF": str(config)}
    names = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
    names["log-file"] = "log"
    munge = [f"--{option}={folder}/munge.{name}" for option, name in names.items()]
    commands = [
        [which("munged"), "--foreground", "--force", *munge],
        [which("slurmctld"), "-D"],
        [which("slurmd"), "-D", "-N", host],
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for words in commands:
            with open(folder / f"output{len(processes)}.log", "wb") as log:
                options = {"stdout": log, "stderr": log, "start_new_session": True}
                processes.append(subprocess.Popen(words, env=environment, **options))
            if len(processes) == 1:
                wait_until(lambda: (folder / "munge.socket").exists())
        wait_until(lambda: "idle" in ask("sinfo", "-h", "-o", "%T", env=environment))
        yield environment
    finally:
        ask("scancel", "--user=root", env=environment)
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def ask(*words: str, env: dict[str, str]) -> str:
    """What one of SLURM's programs prints."""
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=30).stdout
