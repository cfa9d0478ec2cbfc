"""The cases of results/planner.md by section: which there are, and how each of them is measured.

A measured case is figures by name, numbers or words, as results/planner.json keeps them; what
planner_tables.py makes of them. A case that has none raises Failed."""

import ctypes
import dataclasses
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CLUSTERS = Path(__file__).resolve().parent.parent / "configs" / "clusters"
MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that comes when the parent ends
WALL = 4  # times its limit of processor time that a case may take by the clock
GIVE_UP_AFTER = 1.5  # times what a command may take at most it is stopped
LARGE = 128  # ranks from whose number on collectives are measured last
# What Google Benchmark says of every case; all else is counters of ours.
OF_BENCHMARKS = {"name", "family_index", "per_family_instance_index", "run_name", "run_type",
                 "repetitions", "repetition_index", "threads", "iterations", "real_time",
                 "cpu_time", "time_unit", "error_occurred", "error_message"}

RAILS = "rails-2048x8.yaml"  # h100-32x8-rail with 64 racks; written for the measurement
TREES_PLAN = "rails.plan"
MAKE_TREES_PLAN = (f"plan {RAILS} bert-large --schedule hierarchical-tree --bucket-size 2GB "
                   f"-o {TREES_PLAN}")
# Ranks, most seconds of processor time and most gigabytes, if any.
COMMANDS = {
    "schedules fat-tree-128-2to1": (128, 8, None),
    "plan fat-tree-128-2to1 bert-large": (128, 10, None),
    "plan h100-32x8-rail bert-large": (256, 30, None),
    f"topology bounds {RAILS}": (16_384, 60, 4),
    MAKE_TREES_PLAN: (16_384, 60, 4),
    f"plan {RAILS} bert-large --schedule hierarchical-tree --bucket-size 100MB": (16_384, 60, 4),
    f"plan {RAILS} bert-large": (16_384, 60, 4),
    f"simulate {TREES_PLAN} --cluster {RAILS}": (16_384, 60, 4),
}

USUAL = ("ring", "double-binary-tree", "hierarchical", "hierarchical-ring", "hierarchical-tree")
LARGE_BUFFERS = ("64 MiB", "256 MiB", "4 GiB")
USUAL_CASES = [f"{cluster} {size}" for cluster, sizes in
               (("two-racks-40g", ("4 KiB", "1 MiB", "64 MiB", "4 GiB")),
                ("a100-8x8", ("4 KiB", "1 MiB", *LARGE_BUFFERS)),
                ("fat-tree-128-2to1", ("4 KiB", "1 MiB", *LARGE_BUFFERS)),
                ("h100-32x8-rail", ("4 KiB", "1 MiB", *LARGE_BUFFERS))) for size in sizes]

# Cluster, workload, and the cable that is lost.
LOST = ["a100-8x8 bert-large nic0.0->tor0", "a100-8x8 vgg-16 tor0->spine0",
        "fat-tree-128-2to1 bert-large tor0->spine0.1",
        "h100-32x8-rail bert-large nic0.0->leaf0.0"]
# Cluster, model, and ranks.
BUDGETED = {"a100-8x8 bert-large": 64, "fat-tree-128-2to1 bert-large": 128,
            "h100-32x8-rail bert-large": 256, f"{RAILS} bert-large": 16_384}
BUDGETS = (1, 5, 20)  # seconds


MODELS = ("bert-large", "gpt2-124m", "resnet-50", "vgg-16")
SHIPPED = {"two-racks-40g": 4, "a100-8x8": 64, "fat-tree-128-2to1": 128, "h100-32x8-rail": 256}
# Clusters that are written for the measurement (write_unlike), and their ranks.
UNLIKE = {"clos.csv": 24, "torus.csv": 64, "mi250x.csv": 32, "hosts.csv": 100_000}
BEST = "--bytes 1GiB --schedule best --collective"
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
# Ranks of each command, which is measured with --search quick and thorough where it has that.
SEARCHES = {
    **{f"plan {cluster} {model}": ranks for cluster, ranks in SHIPPED.items() for model in MODELS},
    **{f"simulate {cluster} {BEST} {what}": ranks for cluster, ranks in SHIPPED.items()
       for what in COLLECTIVES},
    f"simulate clos.csv {BEST} all-gather": 24, f"simulate torus.csv {BEST} all-reduce": 64,
    f"simulate mi250x.csv {BEST} all-reduce": 32, "plan mi250x.csv bert-large": 32,
    "plan two-racks-40g huge.yaml": 4,
    **{f"explain {cluster} bert-large": ranks for cluster, ranks in SHIPPED.items()},
    "explain mi250x.csv bert-large": 32,
    **{f"schedules {cluster}": ranks for cluster, ranks in SHIPPED.items()},
    **{f"topology bounds {cluster}": ranks for cluster, ranks in (SHIPPED | UNLIKE).items()},
}
LIMIT_OF_THOROUGH = 180  # seconds of processor time


def write_csv(path, links, ranks=()):
    """An edge list; ranks are their names with device classes and hosts."""
    lines = ["source,target,bandwidth,latency,kind", *(",".join(link) for link in links)]
    if ranks:
        lines += ["", "vertex,role,device_class,host"]
        lines += [f"{name},rank,{device},{host}" for name, device, host in ranks]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_unlike(folder):
    """UNLIKE, and a model of one tensor of 10^11 elements."""
    hosts = [(rack, host) for rack, count in enumerate((4, 8, 5, 7)) for host in range(count)]
    write_csv(folder / "clos.csv",
              [(f"leaf{rack}", f"spine{spine}", "10 GB/s", "1 us", "uplink")
               for rack in range(4) for spine in range(3)]
              + [(f"h{rack}.{host}", f"leaf{rack}", "10 GB/s", "1 us", "host-link")
                 for rack, host in hosts],
              [(f"h{rack}.{host}", "A100", f"h{rack}.{host}") for rack, host in hosts])
    cells = [(x, y, z) for x in range(4) for y in range(4) for z in range(4)]
    name = "g{}.{}.{}".format
    write_csv(folder / "torus.csv",
              [(name(*cell), name(*((c + (i == axis)) % 4 for i, c in enumerate(cell))), "25 GB/s",
                "1 us", "nvlink") for cell in cells for axis in range(3)],
              [(name(*cell), "A100", name(*cell)) for cell in cells])
    links = []  # boxes of 8 pairs of dies, pairs in a cube; each pair has a NIC
    for box in range(2):
        for pair in range(8):
            first, second = f"d{box}.{pair}.0", f"d{box}.{pair}.1"
            links += [(first, second, "200 GB/s", "500 ns", "nvlink"),
                      (first, f"nic{box}.{pair}", "50 GB/s", "500 ns", "pcie"),
                      (f"nic{box}.{pair}", "switch", "25 GB/s", "1 us", "host-link")]
            links += [(die, f"cpu{box}", "32 GB/s", "500 ns", "pcie") for die in (first, second)]
            links += [(f"d{box}.{pair}.{die}", f"d{box}.{pair ^ bit}.{die}", "50 GB/s", "500 ns",
                       "nvlink") for bit in (1, 2, 4) if pair < pair ^ bit for die in (0, 1)]
    write_csv(folder / "mi250x.csv", links,
              [(f"d{box}.{pair}.{die}", "MI250X", f"box{box}") for box in range(2)
               for pair in range(8) for die in (0, 1)])
    write_csv(folder / "hosts.csv", [(f"host{i}", "switch", "100 Gbit/s", "1 us", "host-link")
                                     for i in range(UNLIKE["hosts.csv"])])
    (folder / "huge.yaml").write_text("name: huge\nprofiled_batch: 8\nforward: 1 ms\ntensors:\n"
                                      "  - [a, 100000000000, 1 us]\n", encoding="utf-8")


def measure_search(programs, case):
    """Processor time of both searches, and what they found, where they give one figure."""
    if not (programs.folder / "huge.yaml").exists():
        write_unlike(programs.folder)
    row = {"ranks": SEARCHES[case]}
    has_effort = not case.startswith("topology")
    for effort in ("quick", "thorough") if has_effort else ("quick",):
        try:
            done = programs.rackrail(*case.split(), *(("--search", effort) if has_effort else ()),
                                     "--json", limit=LIMIT_OF_THOROUGH)
        except Failed:
            if effort == "quick":
                raise
            continue  # a row without it
        found = json.loads(done.output)
        row[f"{effort}_s"] = done.seconds
        seconds = (sum(size["time_s"] for size in found["sizes"]) if case.startswith("schedules")
                   else found.get("step_time_s", found.get("time_s")))
        if seconds is not None:
            row[f"{effort}_found_s"] = seconds
    return row


class Failed(Exception):
    """What says why a case has no figures."""


@dataclasses.dataclass
class Done:
    """What a process wrote, took and needed."""
    output: str
    seconds: float  # of processor time, user and system
    wall: float
    gigabytes: float


def limited(seconds):
    """For the start of a process: it ends after so many seconds of processor time, and with this program,
    wherever that is stopped."""
    libc = ctypes.CDLL(None)

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return limit


def run(command, folder, limit):
    """The process, one at a time; Failed where it ends in another way than it should."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=errors,
                                   preexec_fn=limited(limit))
        timer = threading.Timer(WALL * limit, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            process.kill()  # where this program is stopped; nothing where the process has ended
        wall = time.monotonic() - started
        seconds = usage.ru_utime + usage.ru_stime
        if process.returncode < 0 and (seconds > limit - 1 or wall > WALL * limit):
            raise Failed(f"not done in {limit:,} s" if seconds > limit - 1 else
                         f"not done after {WALL * limit:,} s by the clock")
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            lines = errors.read().decode(errors="replace").strip().splitlines()
            what = (f"status {process.returncode}" if process.returncode > 0 else
                    signal.Signals(-process.returncode).name)
            raise Failed(f"{what}: {lines[-1]}" if lines else what)
        return Done(output.read().decode(), seconds, wall, usage.ru_maxrss * 1024 / 1e9)


class Programs:
    """The programs of a build, a folder for what they write, and the limit of a case, in seconds
    of processor time."""

    def __init__(self, build, folder, limit):
        self._bench = Path(build).resolve() / "bin" / "bench" / "planner_bench"
        self._rackrail = Path(build).resolve() / "bin" / "rackrail"
        self.folder = Path(folder)
        self._limit = limit
        self.steps = {}  # of plans without a budget, in seconds

    def _checked(self, program):
        if not program.exists():
            sys.exit(f"{program}: is not built")
        return str(program)

    def bench_cases(self, kinds):
        """Those of these functions, as "function/case", in the order of the program."""
        try:
            names = run([self._checked(self._bench), "--benchmark_list_tests",
                         f"--benchmark_filter=^({kinds})/"], self.folder, self._limit).output
        except Failed as error:
            sys.exit(f"{self._bench}: {error}")
        return ["/".join(name.split("/")[:2]) for name in names.split()]

    def bench(self, case):
        """Counters, milliseconds and gigabytes of one case, measured by a process of its own."""
        done = run([self._checked(self._bench), f"--benchmark_filter=^{re.escape(case)}(/|$)",
                    "--benchmark_format=json"], self.folder, self._limit)
        entries = json.loads(done.output)["benchmarks"]
        if len(entries) != 1:
            raise Failed(f"{len(entries)} cases of this name")
        entry = entries[0]
        if entry.get("error_occurred"):
            raise Failed(entry["error_message"])
        figures = {name: value for name, value in entry.items() if name not in OF_BENCHMARKS}
        figures["ms"] = entry["cpu_time"] * MILLISECONDS[entry["time_unit"]]
        figures["gigabytes"] = done.gigabytes
        return figures

    def rackrail(self, *arguments, limit=None):
        return run([self._checked(self._rackrail), *arguments], self.folder, limit or self._limit)

    def answer(self, *arguments):
        return json.loads(self.rackrail(*arguments, "--json").output)

    def write_rails(self):
        text = (CLUSTERS / "h100-32x8-rail.yaml").read_text(encoding="utf-8")
        text = text.replace("name: h100-32x8-rail", "name: rails-2048x8")
        wide = text.replace("racks: { count: 1,", "racks: { count: 64,")
        if wide == text:
            sys.exit("h100-32x8-rail.yaml: no racks to multiply")
        (self.folder / RAILS).write_text(wide, encoding="utf-8")


def measure_usual(programs, case):
    cluster, size = case.split(" ", 1)

    def simulate(schedule):
        return programs.answer("simulate", cluster, "--collective", "all-reduce", "--bytes", size,
                               "--schedule", schedule)
    best = simulate("best")
    times = {name: simulate(name)["time_s"] for name in USUAL}
    usual = min(times, key=times.get)
    return {"schedule": best["schedule"], "ms": 1e3 * best["time_s"], "usual": usual,
            "usual_ms": 1e3 * times[usual]}


def measure_lost(programs, case):
    cluster, workload, link = case.split()
    intact = programs.rackrail("plan", cluster, workload, "-o", "in-use.plan")
    found = programs.answer("replan", "in-use.plan", "--lost-link", link, "--compare-full")
    names = ("touched_buckets", "buckets", "replan_cpu_s", "full_cpu_s", "before_step_time_s",
             "step_time_s", "full_step_time_s")
    return {**{name: found[name] for name in names}, "intact_cpu_s": intact.seconds}


def measure_budget(programs, case):
    cluster, workload, budget = case.split(" ", 2)
    programs.write_rails()
    whole = programs.steps.get((cluster, workload))
    if whole is None:
        whole = programs.answer("plan", cluster, workload)["step_time_s"]
        programs.steps[cluster, workload] = whole
    done = programs.rackrail("plan", cluster, workload, "--time-budget", budget, "--json")
    found = json.loads(done.output)
    return {"ranks": BUDGETED[f"{cluster} {workload}"], "budget_s": float(budget.split()[0]),
            "wall_s": done.wall, "cpu_s": done.seconds, "was_stopped": found["was_stopped"],
            "step_time_s": found["step_time_s"], "whole_step_time_s": whole}


def measure_command(programs, case):
    ranks, most_seconds, _ = COMMANDS[case]
    programs.write_rails()
    if TREES_PLAN in case.split()[:2] and not (programs.folder / TREES_PLAN).exists():
        programs.rackrail(*MAKE_TREES_PLAN.split())
    done = programs.rackrail(*case.split(), limit=int(GIVE_UP_AFTER * most_seconds))
    return {"ranks": ranks, "seconds": done.seconds, "gigabytes": done.gigabytes}


def small_first(cases):
    """Cases of many ranks last; their number is in the name."""
    def is_large(case):
        ranks = re.search(r"_(\d+)(?=_|$)", case.split("/")[1])
        return bool(ranks) and int(ranks.group(1)) > LARGE
    return sorted(cases, key=is_large)


def command_of_usual(case):
    cluster, size = case.split(" ", 1)
    return (f"rackrail simulate {cluster} --collective all-reduce --bytes '{size}' "
            "--schedule best")


def command_of_lost(case):
    cluster, workload, link = case.split()
    return (f"rackrail plan {cluster} {workload} -o in-use.plan && "
            f"rackrail replan in-use.plan --lost-link '{link}' --compare-full")


def command_of_budget(case):
    cluster, workload, budget = case.split(" ", 2)
    return f"rackrail plan {cluster} {workload} --time-budget '{budget}'"


@dataclasses.dataclass(frozen=True)
class Cases:
    """The cases of a section."""
    names: object  # what programs have of them
    measure: object  # figures of programs and a name
    command: object  # of a name

    @staticmethod
    def of_bench(kinds):
        return Cases(lambda programs: programs.bench_cases(kinds),
                     lambda programs, case: programs.bench(case),
                     lambda case: f"planner_bench --benchmark_filter='^{case}(/|$)'")

    @staticmethod
    def of_commands(names, measure, command):
        return Cases(lambda _: list(names), measure, command)


# In the order in which they are measured, the cheapest first.
CASES = {
    "bounds": Cases.of_bench("allgather_bound|reducescatter_bound|allreduce_bound|forest"
                             "|few_trees|shallow"),
    "codecs": Cases.of_bench("choose_codecs|by_force"),
    "in-network": Cases.of_bench("in_network"),
    "steps": Cases.of_bench("network_step"),
    "usual": Cases.of_commands(USUAL_CASES, measure_usual, command_of_usual),
    "commands": Cases.of_commands(COMMANDS, measure_command, lambda case: f"rackrail {case}"),
    "replanning": Cases.of_commands(LOST, measure_lost, command_of_lost),
    "searches": Cases.of_commands(SEARCHES, measure_search, lambda case: f"rackrail {case}"),
    "budgets": Cases.of_commands([f"{plan} {budget} s" for plan in BUDGETED for budget in BUDGETS],
                                 measure_budget, command_of_budget),
    "collectives": Cases.of_bench("all_gather|reduce_scatter|all_reduce"),
}
