"""The tables of results/planner.md, made of measured cases (planner_cases.py): a short introduction
each, and what is wanted of a case. What was tried, and why, is in results/planner-notes.md."""

import dataclasses
import re

from planner_cases import COMMANDS, LIMIT_OF_THOROUGH, RAILS, USUAL

# Most milliseconds of processor time; the limits are the project's own.
LIMITS = {**{f"{bound}_bound/{cluster}": most
             for bound in ("allgather", "reducescatter", "allreduce")
             for cluster, most in (("boxes_1024", 500), ("torus_1024", 3_000),
                                   ("mesh_1024", 3_000))},
          "allreduce_bound/boxes_1024_in_network": 500,
          "allreduce_bound/h100_1024_in_network": 500,
          "forest/boxes_16": 20, "forest/nics_by_gpu_16": 20, "forest/boxes_32": 50,
          "forest/clos_29": 50, "forest/rail_racks_32": 50, "forest/two_kinds_32": 50,
          "forest/lost_cable_32": 50, "forest/boxes_64": 500,
          "forest/boxes_256": 5_000, "forest/rails_1024": 5_000,
          "forest/rails_1024_slow_nic": 60_000, "forest/mixed_nics_64": 500,
          "forest/clos_64": 500, "forest/mixed_nics_256": 5_000}
MOST_GIGABYTES = 4  # of a forest
MOST_OVER = 1.02  # simulated time of a large collective over the optimum
LEAST_NEAR = 0.95  # share of choices within 1 % of the best of all
MOST_OVER_UNIFORM = 1.0  # whatever a plan gives up for codecs that round less
MOST_CHOOSING = 200  # milliseconds to choose the codecs of 400 tensors
MOST_FEW = 4  # trees per rank
LEAST_BY_FEW = 96  # percent of the bound, by at most 4 trees per rank
LEAST_BY_SHALLOW = 98  # by trees of at most 2 diameters + 4 arcs
MOST_OVER_BUDGET = 1.1
MOST_LONGER = 1.01  # of what a quick search finds, times what a thorough one does
MOST_OF_FULL = 10  # percent of a full plan's time that planning again may take

HEAD = f"""# The planner: bounds, forests, collectives, codecs, planning again, commands

`scripts/measure-planner` measures all of it, `--case REGEX` single cases, each by a process of its own; every row
says its day. Figures to compute with, the load before and the command of each are in [planner.json](planner.json);
what stands behind the figures, and what was tried, in [planner-notes.md](planner-notes.md). Measured on {{machine}};
times are of one core. The clusters are those of `tests/support/clusters.hpp`: boxes of 8 GPUs on an NVSwitch (300
GB/s) with 25 GB/s per GPU to two spines (`boxes`) or to one of eight rails (`rails`), tori and meshes of unit
links, Clos networks.
"""


def verdict(met):
    return "yes" if met else "**no**"


def name_of(case):
    return case.split("/")[1]


def time_cells(case, figures):
    limit = LIMITS.get(case)
    met = "" if limit is None else verdict(figures["ms"] <= limit and
                                           figures.get("gigabytes", 0) <= MOST_GIGABYTES)
    return f"{figures['ms']:,.1f} ms", f"{limit:,} ms" if limit else "", met


def bound_cells(case, figures):
    exact = "yes" if figures.get("exact", 1) else "no: of cuts and partitions"
    return case, f"{figures['ranks']:.0f}", exact, *time_cells(case, figures)


def forest_cells(case, figures):
    return (name_of(case), f"{figures['ranks']:.0f}", f"{100 * figures['share']:.1f} %",
            f"{figures['trees']:.0f}", f"{figures['depth']:.0f}", f"{figures['gigabytes']:.2f} GB",
            *time_cells(case, figures))


def few_cells(case, figures):
    share = 100 * figures["share"]
    return (name_of(case), f"{figures['ranks']:.0f}", f"{figures['trees']:.0f}",
            f"{share:.1f} %",
            verdict(figures["trees"] <= MOST_FEW and share >= LEAST_BY_FEW))


def deepest(diameter):
    return 2 * diameter + 4


def shallow_cells(case, figures):
    share = 100 * figures["share"]
    most = deepest(figures["diameter"])
    # Rows of before these were measured have none.
    strict = (f"{deepest(figures['diameter in arcs']):.0f}" if "diameter in arcs" in figures else "",
              f"{figures['depth in links']:.0f}" if "depth in links" in figures else "")
    return (name_of(case), f"{figures['ranks']:.0f}", f"{figures['trees']:.0f}", f"{share:.1f} %",
            f"{figures['depth']:.0f}", f"{most:.0f}", *strict,
            verdict(share >= LEAST_BY_SHALLOW and figures["depth"] <= most))


def collective_cells(case, figures):
    return (case, f"{figures['ranks']:.0f}", f"{figures['over']:.4f}", figures["label"],
            verdict(figures["over"] <= MOST_OVER))


def large_cells(case, figures):
    bound = "optimum" if figures.get("exact", 1) else "cuts and partitions"
    return (case, f"{figures['ranks']:.0f}", f"{figures['over']:.4f}", bound, figures["label"],
            verdict(figures["over"] <= MOST_OVER))


def in_network_cells(case, figures):
    return (name_of(case), f"{figures['ranks']:.0f}", f"{figures['over']:.4f}",
            f"{figures['gain']:.2f}", verdict(figures["over"] <= MOST_OVER))


def step_cells(case, figures):
    return (name_of(case), f"{figures['ranks']:.0f}", f"{figures['step ms']:.1f} ms",
            f"{100 * (figures['over'] - 1):+.1f} %", figures["label"], f"{figures['ms'] / 1e3:.1f} s")


def usual_cells(case, figures):
    cluster, size = case.split(" ", 1)
    over = figures["ms"] / figures["usual_ms"]
    return (f"`{cluster}`", size, figures["schedule"], f"{figures['ms']:.3f} ms",
            figures["usual"], f"{over:.4f}", verdict(over <= 1))


def choice_cells(case, figures):
    return (name_of(case), f"{figures['buckets']:.0f}", f"{figures['ms']:.1f} ms",
            f"{MOST_CHOOSING} ms", verdict(figures["ms"] <= MOST_CHOOSING))


def force_cells(case, figures):
    cases = figures["cases"]
    near = min(figures["near by timeline"], figures["near"]) / cases
    codecs = "of any error" if "any_error" in case else "with errors up to 2 %"
    return (case.split("_")[-1], codecs, f"{cases:.0f}", f"{figures['assignments']:,.0f}",
            f"{figures['near by timeline']:.0f}, "
            f"{100 * (figures['worst by timeline'] - 1):.1f} %",
            f"{figures['near']:.0f}, {100 * (figures['worst'] - 1):.1f} %",
            f"{figures['uniform near']:.0f}", f"{100 * (figures['over uniform'] - 1):+.1f} %",
            verdict(near >= LEAST_NEAR and figures["over uniform"] <= MOST_OVER_UNIFORM))


def lost_cells(case, figures):
    cluster, workload, link = case.split()
    seconds = figures["replan_cpu_s"]
    share = 100 * seconds / figures["full_cpu_s"]
    return (f"`{cluster}`, `{workload}`", f"`{link}`",
            f"{figures['touched_buckets']} of {figures['buckets']}", f"{seconds:.2f} s",
            f"{figures['full_cpu_s']:.1f} s", f"{share:.1f} %", f"{figures['intact_cpu_s']:.1f} s",
            f"{100 * seconds / figures['intact_cpu_s']:.0f} %",
            f"{1e3 * figures['before_step_time_s']:.1f} ms",
            f"{1e3 * figures['step_time_s']:.1f} ms",
            f"{1e3 * figures['full_step_time_s']:.1f} ms", verdict(share <= MOST_OF_FULL))


def budget_cells(case, figures):
    cluster, workload, budget = case.split(" ", 2)
    over = figures["step_time_s"] / figures["whole_step_time_s"] - 1
    core = f"{figures['cpu_s']:.1f} s" if "cpu_s" in figures else ""
    return (f"`{cluster}`, `{workload}`", f"{figures['ranks']:,}", budget,
            f"{figures['wall_s']:.2f} s", core,
            "yes" if figures["was_stopped"] else "no",
            f"{1e3 * figures['step_time_s']:.1f} ms", f"{100 * over:+.1f} %",
            verdict(figures["wall_s"] <= figures["budget_s"] * MOST_OVER_BUDGET))


def search_cells(case, figures):
    ranks = figures["ranks"]
    quick, thorough = figures["quick_s"], figures.get("thorough_s")
    most = 3 if ranks <= 64 else 8 if ranks <= 256 else 20
    over = None
    if "thorough_found_s" in figures and "quick_found_s" in figures:
        over = figures["quick_found_s"] / figures["thorough_found_s"]
    before = f"{thorough:.1f} s" if thorough is not None else f"over {LIMIT_OF_THOROUGH} s"
    if case.startswith("topology"):
        before = "–"
    return (f"`{case}`", f"{ranks:,}", before, f"{quick:.1f} s",
            f"{100 * (over - 1):+.2f} %" if over is not None else "not compared",
            verdict(quick <= most and (over is None or over <= MOST_LONGER)))


def command_cells(case, figures):
    _, seconds, gigabytes = COMMANDS[case]
    must = f"{seconds} s" + (f", {gigabytes} GB" if gigabytes else "")
    met = figures["seconds"] <= seconds and figures["gigabytes"] <= (gigabytes or float("inf"))
    return (f"`{case}`", f"{figures['ranks']:,}", f"{figures['seconds']:.1f} s",
            f"{figures['gigabytes']:.2f} GB", must, verdict(met))


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of those cases of a section whose name begins so, and that no table before it has."""
    cases: str  # a regular expression
    intro: str
    header: tuple  # ends with whether what is wanted is met; the day comes behind it
    cells: object
    title: str = ""
    is_timed: bool = False  # figures are times, so that the load beside them matters

    def measured(self, row):
        words = [row["day"]]
        if self.is_timed and row.get("load") is not None:
            words.append(f"load {row['load']:.1f}")
        return ", ".join(words + ([row["note"]] if "note" in row else []))

    def line(self, case, row):
        if "failed" in row:
            blank = [""] * (len(self.header) - 3)
            return (f"`{case}`", row["failed"], *blank, verdict(False), self.measured(row))
        return (*self.cells(case, row["figures"]), self.measured(row))

    def text(self, rows):
        header = (*self.header, "measured")
        lines = [header, ["---"] * len(header), *(self.line(*row) for row in rows.items())]
        head = (f"### {self.title}\n\n" if self.title else "") + f"{self.intro.strip()}\n\n"
        return head + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


@dataclasses.dataclass(frozen=True)
class Section:
    heading: str
    tables: tuple

    def text(self, rows):
        """The section of rows by case, in their order."""
        parts = [f"## {self.heading}\n"]
        rest = dict(rows)
        for table in self.tables:
            its = {case: row for case, row in rest.items() if re.match(table.cases, case)}
            rest = {case: row for case, row in rest.items() if case not in its}
            parts.append(table.text(its) if its else f"{table.intro.strip()}\n\nNot measured yet.\n")
        return "\n".join(parts)


BOUNDS = Section("Bounds and forests", (
    Table("(allgather|reducescatter|allreduce)_bound/", """
Exact bounds of all-gather and reduce-scatter, and the joint optimum of all-reduce, which is looked for up to 256 ranks
that differ (`topology/alike_ranks.hpp`). Above, what cuts and partitions allow is given. It is the joint optimum where a
reduce-scatter followed by an all-gather reaches that, which is looked at, and on grids of paths and rings, of which the
bound knows nothing: trees along their dimensions load no link more (`planner/algorithms/grid_trees.hpp`). Elsewhere it may
be out of reach. `in_network`: all NVSwitches and switches of rails (`boxes`), or those that the cluster says
(`h100`, four times the shipped `h100-32x8-rail`, under spines), reduce and multicast.""",
          ("case", "ranks", "exact", "time", "must", "met"), bound_cells, is_timed=True),
    Table("forest/", """
A forest is made and checked (every tree spans, every route leads where it should, no link carries too much). Share: of
the bound; trees: per rank; depth: arcs from a root, each from rank to rank, through switches too; memory: of the process.
These are the trees nearest to the bound; plans take shallower ones where they cost at most 2 % of it (below).
`rails_1024_slow_nic`: one NIC of 12 instead of 25 GB/s; `mixed_nics_*`: one such in every third box; `clos_64`: racks of
16, 12, 20 and 16 hosts under 6 spines.""",
          ("case", "ranks", "share", "trees", "depth", "memory", "time", "must", "met"),
          forest_cells, is_timed=True),
    Table("few_trees/", f"""
At most {MOST_FEW} trees per rank, of which {LEAST_BY_FEW} % of the bound are wanted
([notes](planner-notes.md#few-trees-per-rank)).""",
          ("case", "ranks", "trees", "share of the bound", "met"), few_cells),
    Table("shallow/", f"""
Up to 16 trees per rank, as plans have them: {LEAST_BY_SHALLOW} % of the bound are wanted from trees whose depth is at
most twice the diameter and 4. Depth is counted in arcs of trees, which are the steps that an algorithm takes one after
the other, the diameter in links: through switches an arc has two and more. `tests/unit/planner/forest_test.cpp` holds
these and other clusters to that. The stricter figures are beside it: what would be let pass if the diameter were counted
in arcs, too (ways between ranks that pass no other rank), and the depth in links. Between ranks that are linked directly
all of these are the same; under switches any two ranks are one arc apart, or two, and 6 or 8 arcs would be let pass,
which the trees of two Clos networks and of `three_tiers_14` are above.""",
          ("case", "ranks", "trees", "share", "depth", "at most", "at most in arcs",
           "depth in links", "met"), shallow_cells)))

# Names of clusters that have a table of their own.
HARD = "nic_of_|no_nic_|slow_diagonal_|slow_box|four_racks_|lost_cable_"
GRIDS = "cylinder_|grid_|fast_grid_"
LARGE = r"\w+_(576|1024)$"
RANDOM = r"random_\d+$"
COLLECTIVES = Section("Collectives of 1 GiB, simulated", (
    Table(rf"\w+/(?!{HARD}|{GRIDS}|{LARGE}|{RANDOM})", f"""
Time over the optimum: of all-gather and reduce-scatter the exact bound, of all-reduce the joint optimum of reduction
and broadcast; by the best of all families, named beside it, as `rackrail simulate CLUSTER --collective ... --schedule
best` finds and prints it. At most {MOST_OVER} is wanted. What the clusters are, and how they get there:
[notes](planner-notes.md#collectives-of-1-gib).""",
          ("case", "ranks", "over the optimum", "family", "met"), collective_cells),
    Table(rf"\w+/({HARD}|{GRIDS})", """
The same on clusters that are, or were, above it. Eight boxes of 8 GPUs on eight rails, one NIC of which has 3, 15, 20 or
50 instead of 25 GB/s (`nic_of_*_64`), is not there (`no_nic_64`), or one of 12 on each rail, in another box each
(`slow_diagonal_64`); six boxes of 4 of which one, or every second one, has NICs of 10 alone (`slow_box_24`,
`slow_boxes_24`); four boxes of 8, each a rack of its own with a leaf per rail, under three spines (`four_racks_32`);
two racks of two boxes of 8 on four leaves with two cables each, of which one is lost (`lost_cable_32`):
[notes](planner-notes.md#above-the-bar). And grids whose sides are unlike: 16 in a row, each in a ring of four of links
that are four times as fast (`cylinder_64`), and 3 × 5 × 3 of which one side of three has links of four times the rate
(`grid_45`, of 0.4 and 0.1 GB/s, and `fast_grid_45`, of ten times as much; [notes](planner-notes.md#above-512-ranks)).""",
          ("case", "ranks", "over the optimum", "family", "met"), collective_cells,
          title="Slow NICs, unlike grids and other clusters above the bar"),
    Table(rf"\w+/{RANDOM}", """
The same on clusters that no part of the planner was made for, by seed (`tests/support/random_clusters.cpp`): hosts with
NICs of several rates or none, racks under one core, leaves and spines with unlike or lost cables, pods of racks, meshes and
tori with lost or slow cables, of 6 to 64 ranks. `tests/integration/planner/random_clusters_test.cpp` holds the median and
the worst.""",
          ("case", "ranks", "over the optimum", "family", "met"), collective_cells,
          title="Random clusters"),
    Table(r"\w+/", """
And with more than 512 ranks, where no forest has the trees that the bound asks for: over the exact bound, or, of
all-reduces where it is not looked for, over what cuts and partitions allow, which is the joint optimum on meshes all the
same ([bounds](#bounds-and-forests); `long_torus_1024`: 16 × 64; [notes](planner-notes.md#above-512-ranks)).""",
          ("case", "ranks", "over it", "it is", "family", "met"), large_cells,
          title="Above 512 ranks")))

IN_NETWORK = Section("All-reduce of 1 GiB in the network, simulated", (
    Table("in_network/", f"""
The same clusters with switches that reduce and multicast: the NVSwitches only (`nvswitch`), or all of them; from
`clos_of_unlike_spines` on irregular ones, divided as finely as is best. Time of the
family `in-network` over the in-network optimum (the joint one up to 256 ranks that differ, what cuts and partitions
allow above), and how many times as long the faster of ring and hierarchical takes. At most {MOST_OVER} is wanted
([notes](planner-notes.md#in-the-network)).""",
          ("case", "ranks", "over the optimum", "gain", "met"), in_network_cells),))

STEPS = Section("Steps that the network decides", (
    Table("network_step/", """
Plans in FP32 of bert-large on clusters whose ranks or links are unlike, where compute takes a fiftieth of what it takes
on a V100, so that all gradients are there at once and little is hidden: the step, over the plan's lower bound, which
counts no latency and no bucket that others wait for; the families of its buckets, and the time of planning
([notes](planner-notes.md#schedules-of-steps)).""",
          ("case", "ranks", "step", "over the bound", "families", "planning"), step_cells,
          is_timed=True),))

USUAL_SCHEDULES = Section("The best schedule against those that everybody has", (
    Table("", f"""
`rackrail simulate CLUSTER --collective all-reduce --bytes SIZE --schedule best`, over the fastest of
{", ".join(f"`{name}`" for name in USUAL)} by the same command, each divided as
finely as is best for it. Never slower is wanted (`tests/property/planner/best_schedule_property_test.cpp` has other
clusters, random ones among them, and slices of its own).""",
          ("cluster", "size", "fastest", "time", "of these the fastest", "over it", "met"),
          usual_cells),))

CODECS = Section("Choosing codecs for 64 GPUs", (
    Table("choose_codecs/", """
a100-8x8 with NICs of 25 Gbit/s, every tensor a bucket of its own (bert-large has 391): the model of the whole step's
timeline made and searched. Schedules and their times, which are made once for all searches, are not in it.""",
          ("model", "buckets", "time", "must", "met"), choice_cells, is_timed=True),
    Table("by_force/", f"""
How near choices are to the best of all, each of which is simulated: random models of so many layers, each a bucket, on
two racks of two hosts with networks from twice as fast to ten times slower than `two-racks-40g`. Within 1 % of the
optimum, which {100 * LEAST_NEAR:.0f} % must be, and the worst: what the search chooses by its model of the timeline
alone, which knows no order of need, and plans, for which the uniform choices are simulated beside it. These alone are
within 1 % so often, as cases are small. A plan gives up to 0.1 % for codecs that round less, but is never slower than
the best uniform choice.""",
          ("layers", "codecs", "cases", "choices simulated for each", "by the timeline", "plans",
           "uniform choices", "slowest plan over the best uniform choice", "met"), force_cells)))

REPLANNING = Section("Planning again after a link is lost", (
    Table("", f"""
`rackrail replan in-use.plan --lost-link LINK --compare-full`: processor time of the plan that keeps what the link does
not touch, of which at most {MOST_OF_FULL} % of a full plan's is wanted; and the steps of the plan before, of the new one
and of the full one. A full plan is what takes its place where nothing is kept: `rackrail plan` from nothing, with the
whole search, for the cluster as it is now, without the link. That takes longer than planning for the whole cluster did
where this was symmetric, as alike ranks are simulated once: the plan that was in use, and what planning again takes of
its time, are beside it, and of it the share is above {MOST_OF_FULL} % where the loss broke a symmetry of very many
ranks.""",
          ("cluster, workload", "lost", "buckets touched", "time", "full plan", "share",
           "plan of the whole cluster", "share of that", "step before", "step",
           "step, full plan", "met"), lost_cells, is_timed=True),))

TIME_BUDGETS = Section("Plans within a time budget", (
    Table("", f"""
`rackrail plan CLUSTER MODEL --time-budget T`: time by the clock, reading and checking included, of which
{100 * (MOST_OVER_BUDGET - 1):.0f} % more than the budget is let pass (on a busy machine it is longer than what the plan
had of a core); and the step of the plan, over that of the plan without a budget. A budget ends the search, not the
first plan, which is made, simulated and checked whatever it is
([what takes how long](planner-notes.md#plans-within-a-time-budget)).""",
          ("cluster, model", "ranks", "budget", "time", "of a core", "stopped", "step",
           "over the whole search's", "met"), budget_cells, is_timed=True),))

OF_COMMANDS = Section("Time and memory of commands", (
    Table("", f"""
Processor time (user and system) and peak memory of one run each of `rackrail`, release build. `{RAILS}` is
`h100-32x8-rail` with 64 racks: 2,048 hosts of 8 GPUs on rails.""",
          ("command", "ranks", "time", "memory", "must", "met"), command_cells, is_timed=True),))

SEARCHES = Section("Search times, thorough and quick", (
    Table("", f"""
Processor time of one run each of the command with `--search thorough` (before, this was all there was) and with
`--search quick`, the default. At most 3 s are wanted up to 64 ranks, 8 s up to 256 and 20 s above, and a step, or a
collective, at most {100 * (MOST_LONGER - 1):.0f} % longer than the thorough search's; of `schedules`, the sum of all sizes.
`over` is by how much it is longer. What takes more than {LIMIT_OF_THOROUGH} s is cut off. The clusters `*.csv` and `huge.yaml`, one
tensor of 10¹¹ elements, are written by the script.""",
          ("command", "ranks", "thorough", "quick", "over", "met"), search_cells,
          is_timed=True),))

# In the order of the file.
SECTIONS = {"bounds": BOUNDS, "collectives": COLLECTIVES, "in-network": IN_NETWORK,
            "steps": STEPS, "usual": USUAL_SCHEDULES, "codecs": CODECS, "replanning": REPLANNING,
            "searches": SEARCHES, "budgets": TIME_BUDGETS, "commands": OF_COMMANDS}


def document(store):
    """The file of all that has been measured."""
    parts = [HEAD.format(machine=store["machine"])]
    parts += [section.text(store["sections"][name]) for name, section in SECTIONS.items()
              if name in store["sections"]]
    return "\n".join(parts)
