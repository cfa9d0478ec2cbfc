"""What the tests of emulated networks share."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from training import TrainingTest

# Slow enough for any machine: what is tested is not how much it can forward.
TWO_RACKS = """source,target,bandwidth,latency,kind
host0,tor0,80 Mbit/s,2 us,host-link
host1,tor0,80 Mbit/s,2 us,host-link
host2,tor1,80 Mbit/s,2 us,host-link
host3,tor1,80 Mbit/s,2 us,host-link
tor0,core,40 Mbit/s,1 us,uplink
tor1,core,40 Mbit/s,1 us,uplink
"""
PAIR = """source,target,bandwidth,latency,kind
host0,tor,40 Mbit/s,2 us,host-link
host1,tor,40 Mbit/s,2 us,host-link
"""


TRIES = 3
LOCK = Path(tempfile.gettempdir()) / "rackrail-emulation-tests.lock"
# Before a command, which is then no root's: as whom nothing can be emulated.
WITHOUT_ROOT = ["unshare", "--user", "--map-user=1000"] if os.geteuid() == 0 else []


def only_one(test):
    """Until the test has ended no other one emulates a network: rates would not be held beside another."""
    lock = LOCK.open("w")
    test.addCleanup(lock.close)
    fcntl.flock(lock, fcntl.LOCK_EX)


def why_not():
    """Why namespaces cannot be made here; empty: they can."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "no unshare or no ip here (Debian: util-linux, iproute2)"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return "" if probe.returncode == 0 else "network namespaces: " + probe.stderr.strip()


def interfaces():
    return set(os.listdir("/sys/class/net"))


def names_of(*owners):
    """Of namespaces that the commands with these process ids made: others' are none of a test's
    business. One without a name goes with the last process in it."""
    folder = Path("/run/netns")
    every = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    return {name for name in every if any(name.startswith(f"rackrail-{pid}-") for pid in owners)}


@unittest.skipIf(why_not(), why_not())
class EmulationTest(TrainingTest):
    """Remembers what its commands made, to see that nothing of it was left. One such test runs at a
    time, whatever program it is of."""

    def setUp(self):
        only_one(self)
        super().setUp()
        self.write("racks.csv", TWO_RACKS)
        self.write("pair.csv", PAIR)
        self.started = []  # process ids
        self.interfaces_before = interfaces()

    def start(self, *arguments, **options):
        process = super().start(*arguments, **options)
        self.started.append(process.pid)
        return process

    def own_names(self):
        return names_of(*self.started)

    def rackrail(self, *arguments, status=0, **options):
        """Once more where links did not hold their rates: the machine was busy with other things."""
        for _ in range(TRIES - 1):
            result = self.run_any(*arguments, **options)
            was_busy = '"valid": false' in result.out or "INVALID: " in result.err
            if result.status == status or not was_busy:
                self.assertEqual(result.status, status, str(result))
                return result
        return super().rackrail(*arguments, status=status, **options)

    def emulate(self, cluster, *command, calibration=None):
        """What --json prints of a command in it; --json comes first, or it were the command's."""
        options = ("--calibration", calibration) if calibration else ()
        result = self.rackrail("emulate", cluster, *options, "--json", "--", *command)
        self.assertEqual(result.err, "", str(result))
        return result.json

    def assert_nothing_left(self, message=""):
        self.assert_no_processes_left()
        self.assertEqual(self.own_names(), set(), message)
        self.assertEqual(interfaces() - self.interfaces_before, set(), message)


def links_in(process, station):
    """What `ip` says of the interfaces of a station of a running command with --emulate."""
    name = f"rackrail-{process.pid}-{station}"
    shown = subprocess.run(["ip", "-n", name, "-j", "link", "show", "type", "veth"], check=True,
                           capture_output=True, text=True)
    return json.loads(shown.stdout)


def set_rate(process, station, other, megabits):
    """Gives the cable between two stations of a running command another rate, both ways."""
    ends = [(a["ifname"], b["ifname"])
            for a in links_in(process, station) for b in links_in(process, other)
            if (a["ifindex"], a["link_index"]) == (b["link_index"], b["ifindex"])]
    (ports,) = ends
    for place, port in zip((station, other), ports):
        subprocess.run(
            ["tc", "-n", f"rackrail-{process.pid}-{place}", "class", "change", "dev", port,
             "parent", "1:", "classid", "1:1", "htb", "rate", f"{megabits}mbit", "ceil",
             f"{megabits}mbit", "burst", "64kb", "cburst", "64kb", "quantum", "18000"], check=True)


def set_link(process, host, state, interface="rail0"):
    """Cuts a cable of a host of a running command, or joins it again: "down", "up"."""
    subprocess.run(["ip", "-n", f"rackrail-{process.pid}-{host}", "link", "set", interface, state],
                   check=True)
