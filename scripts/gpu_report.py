"""What scripts/gpu-check leaves: what was found against each target, as JSON and as a table."""

import json

DIRECT = "direct"
ENCODED = "hybrid, int8"  # between two hosts; the others are in FP32
WITH_NCCL = ("nccl", "hybrid", ENCODED)
PATHS = ("staged", DIRECT, *WITH_NCCL)  # of gradients
PATHS_BY_MPS = ("staged", *WITH_NCCL)
BY_MPS = ", MPS"  # after one: what the processes launch overlaps on the GPU; else they take turns on it
PLANNED_WAYS = (*PATHS, *(path + BY_MPS for path in PATHS_BY_MPS))
WANTED_HIDDEN = 0.9  # of the sums, where the plan says that so much can be
STREAMING_TARGET = 0.85  # of the rate of a copy, what casts have to reach
WANTED_AGAINST_TORCH = 5


def write(report, output):
    """The report as JSON and as a table, which is returned. A file is whole whenever all ends."""
    output.mkdir(parents=True, exist_ok=True)
    report["targets"] = []
    try:
        report["targets"] = targets(report) if report["timings"] or report["training"] else []
        text = table(report)
    except Exception as error:  # the JSON has all of it
        text = f"# no table: {type(error).__name__}: {error}\n"
    for name, content in (("gpu-report.json", json.dumps(report, indent=2) + "\n"),
                          ("gpu-report.md", text)):
        (output / f"{name}.new").write_text(content)
        (output / f"{name}.new").replace(output / name)
    return text


def reached(result):
    """Whether enough of the sums was hidden; None where the plan says that it cannot be."""
    predicted = result["predicted_hidden_share"]
    if predicted is None or predicted < WANTED_HIDDEN:
        return None
    return result["measured_hidden_share"] >= WANTED_HIDDEN


def table(report):
    """The report as Markdown."""
    lines = [f"# {report['device']}", "",
             f"{report['date']}, revision {report['revision']}, CUDA {report['cuda']}"
             + "".join(f", driver {machine['driver']}, {machine['cores']} cores"
                       for machine in [report.get("machine")] if machine) + ".", "",
             "| step | outcome | s |", "| --- | --- | --- |"]
    lines += [f"| {s['name']} | {s['outcome']} | {s['seconds']} |" for s in report["steps"]]
    lines += ["", *(f"- {name}: {count['passed']} cases passed, {count['failed']} failed, {count['skipped']} "
                    "skipped" + "".join(f"; {case}: {why}" for case, why in count["skips"]) + "."
                    for name, count in report.get("cases", {}).items())]
    wrong = [v for v in report["verification"] if not v["good"]]
    if report["verification"]:
        lines += ["", f"{len(report['verification']) - len(wrong)} of "
                  f"{len(report['verification'])} results are those of the CPU, bit by bit."]
    lines += [f"- {v['codec']}, {v['what']}: {v['problem']}" for v in wrong]
    for each in report["nccl"]:
        lines.append(f"- {each['ranks']} ranks on one GPU, {each['path']}, codec {each['codec']}: "
                     f"{each['elements']} floats summed {each['steps']} times, "
                     f"{'all right' if each['good'] else 'WRONG'}, {each['step_s'] * 1e3:.1f} ms a step "
                     "(NCCL through sockets)" + loss_text(each) + ".")
    lines += map(two_nodes_text, report["two_nodes"])
    lines += [lost_worker_text(lost) for lost in [report.get("lost_worker")] if lost]
    for each in report["ddp"]:
        lines.append(f"- PyTorch {each['torch']}, DDP of {each['ranks']} ranks on one GPU, {each['path']}, "
                     f"codec {each['codec']}: {each['buckets']} buckets, loss {each['first_loss']:.3f} to "
                     f"{each['last_loss']:.4f} (Gloo: {each['gloo_last_loss']:.4f}), "
                     f"{each['step_s'] * 1e3:.1f} ms a step (Gloo: {each['gloo_step_s'] * 1e3:.1f})"
                     f"; gradients are ready within {each['profiled_ready_s'] * 1e3:.1f} of "
                     f"{each['backward_s'] * 1e3:.1f} ms of backward.")
    lines += [f"- Arrays of {each['library']} {each['version']} on the GPU, {each['ranks']} ranks, {each['path']}: "
              "summed exactly, and the sums are arrays of the same library." for each in report["arrays"]]
    cut = [s["name"] for s in report["steps"]
           if s["outcome"].startswith(("no time left", "stopped after"))]
    if cut:
        lines += ["", f"Stopped at a limit, or not begun for want of time: {', '.join(cut)}."]
    lines += target_table(report)
    lines += planned_table(report["training"])
    blocks = list(dict.fromkeys(t["blocks_per_multiprocessor"] for t in report["timings"]))
    if blocks:
        lines += ["", "| what | bytes per element | median ms | GB/s | of copy | wanted | reached |"
                  + "".join(f" of copy, {b} blocks |" for b in blocks[1:]),
                  "|" + " --- |" * (6 + len(blocks))]
        first = [t for t in report["timings"] if t["blocks_per_multiprocessor"] == blocks[0]]
        others = [{t["what"]: t for t in report["timings"] if t["blocks_per_multiprocessor"] == b}
                  for b in blocks[1:]]
        for t in first:
            wanted = f"{t['target']:.0%}" if "target" in t else ""
            reached = {True: "yes", False: "no"}.get(t.get("reached"), "")
            lines.append(
                f"| {t['what']} | {t['bytes_per_element']:.2f} | {t['median_s'] * 1e3:.3f} "
                f"| {t['bytes_per_s'] / 1e9:.0f} | {t['share_of_copy']:.1%} | {wanted} | {reached} |"
                + "".join(f" {rows[t['what']]['share_of_copy']:.1%} |" if t["what"] in rows else " |"
                          for rows in others))
        lines += ["", f"The first figures are for {blocks[0]} thread blocks per multiprocessor."]
    if report.get("info"):
        lines += ["", "`rackrail info`:", "", "```", report["info"].rstrip(), "```"]
    return "\n".join(lines) + "\n"


def loss_text(run):
    if "lost" not in run:
        return ""
    how = "ncclCommShrink" if run["regroup"] == "shrink" else "new communicators"
    what = "stopped" if run["by"] == "stop" else "killed"
    return (f"; rank {run['lost']} {what} in a sum, the others, told of it, had given that up within "
            f"{run['noticed_s'] * 1e3:.0f} ms, and after {run['summed_again_s']:.1f} s more had summed {run['steps']} "
            f"times again, by {how}")


def two_nodes_text(nodes):
    """Figures of the plan are of the round times that it was made with, not of this machine."""
    waits = [rank["sync_wait_s"] * 1e3 for rank in nodes["ranks"]]
    return (f"- 2 nodes of 2 ranks{nodes['sharing']}, {nodes['transport']}, int8: {nodes['steps']} steps of "
            f"digits-mlp, loss {nodes['losses'][0]:.3f} to {nodes['losses'][-1]:.3f}, "
            f"{nodes['step_time_s'] * 1e3:.1f} ms a step, "
            f"of which the ranks wait {min(waits):.1f} to {max(waits):.1f} ms for sums "
            f"({nodes['sync_share']:.0%}; the plan, made for GPUs of their own, has "
            f"{nodes['plan_step_time_s'] * 1e3:.1f} ms and {nodes['plan_sync_share']:.0%}); "
            f"parameters {'agree' if nodes['parameters_agree'] else 'DIFFER'}.")


def lost_worker_text(lost):
    losses = [f"{', '.join(each['lost'])} lost, on again after {each['resumed_after_s']:.1f} s"
              for each in lost["losses_of_workers"]]
    return (f"- the same with a worker killed: {'; '.join(losses)}; {lost['steps']} steps, the last by "
            f"{lost['workers']} workers; parameters {'agree' if lost['parameters_agree'] else 'DIFFER'}.")


def planned_table(trainings):
    """Predicted beside measured."""
    if not trainings:
        return []
    lines = ["", "| planned training | what | predicted ms | measured ms | error |",
             "| --- | --- | --- | --- | --- |"]
    for each in trainings:
        for what in ("sums", "step"):
            row = each[what]
            lines.append(f"| {each['path']} | {row['what']} | {row['predicted_s'] * 1e3:.2f} "
                         f"| {row['measured_s'] * 1e3:.2f} | {row['relative_error']:+.1%} |")
        lines.append(f"| {each['path']} | waiting for sums | {each['predicted_exposed_s'] * 1e3:.2f} "
                     f"| {each['measured_exposed_s'] * 1e3:.2f} | |")
    lines.append("")
    for each in trainings:
        said = {True: "reached", False: "NOT reached",
                None: "not to be expected by the plan"}[each["reached"]]
        lines.append(
            f"- {each['path']}: {each['workers']} ranks on {each['gpus']} GPU, {each['model']}, "
            f"{each['gradient_bytes'] / 1e6:.1f} MB of gradients in {each['buckets']} buckets by "
            f"{each['schedule']}, {each['transport']}; of the sums {share(each, 'predicted')} are hidden "
            f"as predicted, {share(each, 'measured')} as measured (wanted: {WANTED_HIDDEN:.0%}, {said}); "
            f"parameters {'agree' if each['parameters_agree'] else 'DIFFER'}.")
    return lines


def share(training, how):
    hidden = training[f"{how}_hidden_share"]
    return "-" if hidden is None else f"{hidden:.1%}"


def targets(report):
    """What must be reached on the GPU beside what was: met is None where that cannot be said, and why.

    Of codecs, the figures are those of the first number of thread blocks per multiprocessor.
    """
    timings = report["timings"]
    first = [t for t in timings
             if t["blocks_per_multiprocessor"] == timings[0]["blocks_per_multiprocessor"]]
    rows = [(t["what"], f"{t['target']:.0%} of a copy's rate", f"{t['share_of_copy']:.1%}",
             t["share_of_copy"] >= t["target"]) for t in first if "target" in t]
    if not rows:
        rows.append(("rates of the codecs", "as in README.md", "not measured", None))
    return [dict(zip(("what", "must", "found", "met"), row))
            for row in [*rows, *feedback_targets(first), torch_target(report, first),
                        *map(hidden_target, PLANNED_WAYS,
                             [[t for t in report["training"] if t["path"] == way]
                              for way in PLANNED_WAYS])]]


def feedback_targets(timings):
    """Of what error feedback adds, in copies of the gradient: one more pass, at the rate of casts."""
    by_name = {t["what"]: t for t in timings}
    copy = by_name.get("device copy")
    for what, timing in by_name.items():
        plain = by_name.get(what.removesuffix(" with feedback"))
        if what.endswith(" with feedback") and plain and copy:
            most = 1 / STREAMING_TARGET
            more = (timing["median_s"] - plain["median_s"]) / copy["median_s"]
            yield (f"{what}: beyond {plain['what']}",
                   f"1 pass: the time of {most:.2f} copies of the gradient", f"{more:.2f}", more <= most)


def torch_target(report, timings):
    torch = report.get("torch")
    ours = [t["median_s"] for t in timings if t["what"] == "topk encode"]
    what, must = "top-k against torch.topk", f"{WANTED_AGAINST_TORCH} times as fast"
    if not torch or not ours:
        return what, must, "not measured", None
    times = torch["topk_s"] / ours[0]
    return (what, must, f"{times:.1f} times ({torch['topk_s'] * 1e3:.2f} ms by {torch['version']}, "
            f"{ours[0] * 1e3:.2f} ms here, {torch['elements']} floats, 1 %)", times >= WANTED_AGAINST_TORCH)


def hidden_target(path, trainings):
    what, must = f"sums hidden by backward, {path}", f"{WANTED_HIDDEN:.0%} where the plan says so"
    if not trainings:
        return what, must, "not measured", None
    training = trainings[-1]
    return what, must, (f"{share(training, 'measured')}, predicted {share(training, 'predicted')}"
                        ), training["reached"]


def target_table(report):
    if not report["targets"]:
        return []
    lines = ["", "| target | must | found | met |", "| --- | --- | --- | --- |"]
    return lines + [f"| {t['what']} | {t['must']} | {t['found']} | "
                    f"{ {True: 'yes', False: 'NO', None: '-'}[t['met']]} |" for t in report["targets"]]
