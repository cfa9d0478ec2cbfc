"""A Slurm of one node on this machine, for the tests of `srun`: its daemons in a folder of its own.

Nothing outside that folder is read or written: key, configuration, state, sockets and logs are
there, and the ports are free ones. The daemons end with stop(), or with the process that started
them. slurmd needs root.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import harness

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scancel")
START_TIME = 60  # seconds for the node to be there
PR_SET_PDEATHSIG = 1

CONFIGURATION = """ClusterName=rackrail-test
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={next_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={node} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=5 State=UP
"""


def program(name):
    """Its path, also where daemons are and PATH does not look; None if there is none."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing():
    """Why there can be no Slurm here; None if there can."""
    absent = [name for name in PROGRAMS if program(name) is None]
    if absent:
        return f"no {', '.join(absent)} here (Debian: slurmctld slurmd slurm-client munge)"
    return None if os.geteuid() == 0 else "slurmd starts tasks as root only"


class DidNotStart(Exception):
    """With the last lines of the daemons' logs."""


class Slurm:
    def __init__(self):
        # Short: the paths of sockets may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.variables = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons = []

    def start(self):
        """Returns when the node takes jobs. Throws DidNotStart."""
        port = harness.free_ports(2)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(64))
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            node=socket.gethostname().partition(".")[0], port=port, next_port=port + 1,
            folder=self.folder, cores=os.cpu_count()))
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}",
                     f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                     f"--seed-file={self.folder}/seed", "--num-threads=2")
        end = time.monotonic() + START_TIME
        while not (self.folder / "munge.socket").exists():
            self._go_on_waiting(end)
        self._daemon("slurmctld", "-D", "-c")
        self._daemon("slurmd", "-D", "-c")
        while self._query("sinfo", "--noheader", "--format=%T") != "idle":
            self._go_on_waiting(end)

    def why_not(self, plugin):
        """Why srun cannot use a plugin for --mpi here; empty: it can."""
        probe = subprocess.run([program("srun"), "-n", "1", f"--mpi={plugin}", "true"], text=True,
                               env=self._environment(), capture_output=True, timeout=30)
        return "" if probe.returncode == 0 else probe.stderr.partition("\n")[0].strip()

    def stop(self):
        """Cancels what is left, ends the daemons and removes the folder."""
        if len(self.daemons) == 3:
            self._query("scancel", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self):
        kept = {k: v for k, v in os.environ.items() if not harness.LAUNCHER_VARIABLES.match(k)}
        return {**kept, **self.variables}

    def _daemon(self, name, *arguments):
        libc = ctypes.CDLL(None)
        with open(self.folder / f"{name}.log", "wb") as log:
            self.daemons.append(subprocess.Popen(
                [program(name), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment(), cwd=self.folder, start_new_session=True,
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)))

    def _query(self, name, *arguments):
        try:
            return subprocess.run([program(name), *arguments], env=self._environment(), text=True,
                                  capture_output=True, timeout=30).stdout.strip()
        except subprocess.TimeoutExpired:
            return ""

    def _go_on_waiting(self, end):
        ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
        if ended or time.monotonic() > end:
            logs = {log.name: log.read_text(errors="replace").splitlines()[-1:]
                    for log in sorted(self.folder.glob("*.log"))}
            raise DidNotStart(f"ended: {ended}, last lines: {logs}")
        time.sleep(0.1)
