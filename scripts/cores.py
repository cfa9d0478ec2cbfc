"""How far apart this machine's cores are while something is timed, and which timings that leaves.

The cores of a virtual machine may share a cache (30 ns from one to the other) or lie on two sockets
(170 ns), and change from the one to the other every few seconds. What processes take that talk to
each other all the time changes with it, by a factor of two, whoever wrote them; so timings of
microseconds are compared between those that were taken with the cores close together. It changes as
much with how the system distributes processes over the cores, which lasts as long as such a timing:
they are bound.
"""

import os
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "release" / "bin" / "peers" / "core_distance"
CLOSE = 60  # nanoseconds: they share a cache


def build():
    subprocess.run(["cmake", "--build", PROGRAM.parents[2], "--target", PROGRAM.name], check=True,
                   stdout=subprocess.DEVNULL)


def distance():
    """Nanoseconds from one core to another, now."""
    return float(subprocess.run([PROGRAM], stdout=subprocess.PIPE, text=True, check=True).stdout)


def bind(rank, ranks):
    """This process and those it starts to a core: neighbours to the same one where cores are few."""
    own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {own[rank * len(own) // ranks]})


def close_ones(timings):
    """Of (value, greatest distance before and after) the values with close cores; all if none had."""
    timings = list(timings)
    close = [value for value, apart in timings if apart <= CLOSE]
    return close or [value for value, _ in timings]


def share_of_close(distances):
    """For people to read: how many of the timings had close cores."""
    distances = list(distances)
    close = sum(apart <= CLOSE for apart in distances)
    return (f"cores at most {CLOSE} ns apart in {close} of {len(distances)} timings: of each figure\nthose "
            "count, and all where there are none")
