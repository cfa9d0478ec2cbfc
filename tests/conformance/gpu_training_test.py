"""rackrail train --device cuda on an emulated GPU, one for each worker's process.

    gpu_training_test.py PATH-OF-THE-COMMAND-ON-AN-EMULATED-GPU PATH-OF-RECORDING-NCCL

Matrices are multiplied by a stand-in for cuBLAS, and there is no NCCL, which would want a real GPU, but a
library that records what NCCL would find when it is called, or one that joins processes.
"""
import math
import os
import runpy
import signal
import sys
from pathlib import Path

os.environ["RACKRAIL_COMMAND"] = sys.argv.pop(1)
RECORDING_NCCL = sys.argv.pop(1)
PROCESS_NCCL = str(Path(RECORDING_NCCL).resolve().with_name("process_nccl.so"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration" / "command"))

import harness  # noqa: E402  (reads the variable)
from survival import RESUMED  # noqa: E402
from training import TOKEN, SmallTrainingTest, small_training  # noqa: E402

CUDA = ("--training", "small.yaml", "--device", "cuda")
GPU_CHECK = runpy.run_path(str(harness.SOURCE / "scripts" / "gpu-check"))  # what it has and does, by name


class GpuTraining(SmallTrainingTest):
    def environment(self, **variables):
        return super().environment(RACKRAIL_NCCL_LIBRARY="/nonexistent/libnccl.so.2", **variables)

    def train(self, *options):
        return self.rackrail_json("train", "plan.json", *options)

    def test_losses_and_traffic_are_those_of_the_cpu(self):
        self.make_plan("--codec", "none", "--schedule", "ring", cluster="two-racks-40g")
        on_cpu = self.train("--training", "small.yaml", "--workers", "4")
        on_gpu = self.train(*CUDA, "--workers", "4", "--share-gpu")
        self.assertEqual((on_cpu["device"], on_cpu["transport"]), ("cpu", "ucx"))
        self.assertEqual((on_gpu["device"], on_gpu["transport"]),
                         ("emulated GPU", "pinned memory and ucx"))
        self.assertTrue(on_gpu["parameters_agree"])
        for ours, theirs in zip(on_gpu["losses"], on_cpu["losses"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-4)
        self.assertEqual(on_gpu["bytes_over_tier"], on_cpu["bytes_over_tier"])
        self.assertIn("rank 0 has no NCCL", " ".join(on_gpu["notes"]))

    def test_codecs_run_on_the_gpu_too(self):
        self.make_plan("--codec", "int8", cluster="two-racks-40g")
        run = self.train(*CUDA, "--workers", "4", "--share-gpu", "--gpu-path", "staged")
        self.assertTrue(run["parameters_agree"])
        self.assertLess(run["losses"][-1], run["losses"][0])
        self.assertEqual(run["notes"], [])

    def test_a_training_goes_on_from_a_checkpoint_on_either_side(self):
        self.make_plan("--codec", "none")
        gpu = (*CUDA, "--workers", "2", "--share-gpu", "--gpu-path", "staged")
        whole = self.train(*gpu)
        self.train(*gpu, "--steps", "6", "--checkpoints", "saved")
        on_cpu = self.train("--training", "small.yaml", "--workers", "2", "--checkpoints", "saved",
                            "--resume")
        self.assertEqual(on_cpu["steps"], whole["steps"])
        self.assertAlmostEqual(on_cpu["final_loss"], whole["final_loss"], delta=1e-3)

    def test_a_lost_worker_is_an_error_that_names_it(self):
        self.make_plan("--codec", "none")
        self.write("small.yaml", small_training(checkpoint_every=1))
        running = self.start("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                             "--steps", "100000", "--checkpoints", "saved")
        self.wait_for_checkpoint("saved")
        victim = [pid for pid in self.processes()
                  if harness.command_line(pid).endswith("--rank 1")]
        os.kill(victim[0], signal.SIGKILL)
        result = self.finish(running)
        self.assertEqual(result.status, 1, str(result))
        self.assertIn("rank 1", result.err)
        self.assert_no_processes_left()

    def test_each_worker_needs_a_gpu_unless_they_share(self):
        self.make_plan()
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", "2", status=1)
        self.assertIn("rank 1 has no GPU of its own: found 1 on ", result.err)
        self.assertIn("expected more, or --share-gpu", result.err)

    def test_nccl_that_is_asked_for_and_missing_is_an_error(self):
        self.make_plan()
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                               "--gpu-path", "nccl", status=1)
        self.assertIn("NCCL cannot be used: rank 0 has no NCCL", result.err)

    def test_what_does_not_go_together_is_refused(self):
        self.make_plan()
        for options in (("--share-gpu",), ("--gpu-path", "nccl")):
            with self.subTest(options=options):
                result = self.rackrail("train", "plan.json", "--training", "small.yaml", "--device", "cpu",
                                       *options, status=2)
                self.assertIn("--device: found cpu, expected cuda, with --share-gpu or --gpu-path", result.err)
        self.rackrail("train", "plan.json", *CUDA, "--on-slow", "report", status=2)

    def test_to_share_a_gpu_is_to_compute_on_it(self):
        self.make_plan("--codec", "none", "--schedule", "ring", cluster="two-racks-40g")
        run = self.train("--training", "small.yaml", "--workers", "4", "--share-gpu")
        self.assertEqual(run["device"], "emulated GPU")

    def validate(self, *options, **expected):
        return self.rackrail("validate", *CUDA, "--share-gpu", "--gpu-path", "staged", "--workers",
                             "2", "--steps", "6", *options, **expected)

    def test_predictions_are_held_against_a_training_on_the_gpu(self):
        report = self.validate("--json").json
        self.assertEqual((report["device"], report["transport"]),
                         ("emulated GPU", "pinned memory and ucx"))
        self.assertEqual((report["workers"], report["gpus"], report["local_batch"]), (2, 1, 16))
        self.assertNotIn("hosts", report)
        self.assertEqual(report["gradient_bytes"], 4 * (10 + 320 + 32 + 2048))
        self.assertTrue(report["parameters_agree"])
        for what in ("sums", "step"):
            for how in ("predicted_s", "measured_s"):
                self.assertGreater(report[what][how], 0, what)
            self.assertAlmostEqual(report[what]["relative_error"], report[what]["predicted_s"]
                                   / report[what]["measured_s"] - 1)
        for how in ("predicted", "measured"):
            exposed = report[f"{how}_exposed_s"]
            self.assertGreaterEqual(exposed, 0)
            self.assertLess(exposed, report["step"][f"{how}_s"])
            self.assertAlmostEqual(report[f"{how}_hidden_share"],
                                   1 - exposed / report["sums"][f"{how}_s"])
        self.assertEqual((len(report["sync_waits_s"]), min(report["sync_waits_s"])), (2, report["measured_exposed_s"]))
        self.assertTrue(math.isfinite(report["final_loss"]))

    def test_a_bound_on_the_error_is_the_exit_status(self):
        result = self.validate("--within", "0.0001%", status=1)
        text = result.out
        self.assertIn("note: workers that share a GPU take turns", result.err)
        self.assertRegex(text, r"sums alone +pinned memory and ucx")
        self.assertIn("hidden: ", text)
        self.assertIn("bit-identical on all ranks", text)

    def test_what_validate_cannot_do_on_a_gpu_is_refused(self):
        self.validate("two-racks-40g", status=2)
        for option, value in (("--codec", "int9"), ("--schedule", "rings")):
            self.assertIn(f"{option[2:]}: found '{value}'", self.validate(option, value, status=2).err)
            self.assertIn("--device cuda with it",
                          self.rackrail("validate", "two-racks-40g", option, value, status=2).err)
        self.rackrail("validate", "--workers", "2", status=2)
        self.rackrail("validate", status=2)
        result = self.rackrail("validate", *CUDA, "--workers", "2", "--gpu-path", "staged", status=1)
        self.assertIn("rank 1 has no GPU of its own", result.err)

    def test_info_says_which_path_is_in_use(self):
        features = {each["name"]: each for each in self.rackrail_json("info")["features"]}
        self.assertEqual(features["library: cuBLAS"]["detail"], "a stand-in")
        path = features["gradients of GPUs"]
        self.assertTrue(path["available"])
        self.assertTrue(path["detail"].startswith("over a transport"), path["detail"])
        messages = features["messages of GPUs"]
        self.assertFalse(messages["available"])
        self.assertRegex(messages["detail"], r"^staged through pinned memory: ucx: UCX [0-9.]+ was ")

    def test_direct_messages_that_are_asked_for_and_cannot_be_are_an_error(self):
        self.make_plan()
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                               "--gpu-path", "direct", status=1)
        self.assertIn("transport ucx takes none here", result.err)


class DirectMessages(SmallTrainingTest):
    """With a UCX that is taken for one built with CUDA, which is given the GPU's memory: the host's,
    as the GPU is emulated."""

    WITH_CUDA = {"EMULATED_UCX_WITH_CUDA": "1"}

    def environment(self, **variables):
        return super().environment(
            **{"RACKRAIL_NCCL_LIBRARY": "/nonexistent/libnccl.so.2", **self.WITH_CUDA, **variables})

    def test_staged_and_direct_messages_give_one_training(self):
        self.make_plan("--codec", "int8", cluster="two-racks-40g")
        direct, staged, unasked = (
            self.rackrail_json("train", "plan.json", *CUDA, "--workers", "4", "--share-gpu",
                               "--gpu-path", path) for path in ("direct", "staged", "auto"))
        self.assertEqual([run["transport"] for run in (direct, staged, unasked)],
                         ["device memory and ucx", "pinned memory and ucx", "device memory and ucx"])
        for run in (staged, unasked):
            self.assertEqual(run["losses"], direct["losses"])
            self.assertEqual(run["bytes_over_tier"], direct["bytes_over_tier"])

    def test_under_mps_messages_are_staged_and_never_direct(self):
        """As if its daemon ran."""
        self.make_plan("--codec", "none")
        by_mps = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
        self.assertIn("shared by MPS", self.rackrail("info", variables=by_mps).out)
        train = ("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu", "--json", "--gpu-path")
        run = self.rackrail(*train, "auto", variables=by_mps).json
        self.assertEqual(run["transport"], "pinned memory and ucx")
        result = self.rackrail(*train, "direct", status=1, variables=by_mps)
        self.assertIn("the GPU of rank 0 is served by CUDA's MPS, under which direct messages hang", result.err)

    def test_ranks_with_and_without_a_ucx_with_cuda_are_one_job(self):
        self.make_plan("--codec", "none")
        coordinator = f"127.0.0.1:{harness.free_ports(1)}"
        running = [self.start("train", "plan.json", *CUDA, "--share-gpu", "--json", variables={
            **TOKEN, "RACKRAIL_RANK": str(rank), "RACKRAIL_WORLD_SIZE": "2",
            "RACKRAIL_COORDINATOR": coordinator, "EMULATED_UCX_WITH_CUDA": str(rank)})
            for rank in range(2)]
        results = [self.finish(process) for process in running]
        self.assertEqual([result.status for result in results], [0, 0], str(results))
        self.assertTrue(results[0].json["parameters_agree"])

    def test_a_lost_worker_is_an_error_that_names_it(self):
        self.make_plan("--codec", "none")
        self.write("small.yaml", small_training(checkpoint_every=1))
        running = self.start("train", "plan.json", *CUDA, "--workers", "2", "--share-gpu",
                             "--steps", "100000", "--checkpoints", "saved")
        self.wait_for_checkpoint("saved")
        victim = [pid for pid in self.processes()
                  if harness.command_line(pid).endswith("--rank 1")]
        os.kill(victim[0], signal.SIGKILL)
        result = self.finish(running)
        self.assertEqual(result.status, 1, str(result))
        self.assertIn("rank 1", result.err)
        self.assert_no_processes_left()

    def test_info_says_which_path_is_in_use(self):
        features = {each["name"]: each for each in self.rackrail_json("info")["features"]}
        self.assertEqual(features["messages of GPUs"]["detail"], "directly, by ucx")


class Nccl(SmallTrainingTest):
    """With a stand-in for NCCL between the workers."""

    def environment(self, **variables):
        return super().environment(RACKRAIL_NCCL_LIBRARY=PROCESS_NCCL, **variables)

    def train(self, path, *options):
        self.write("small.yaml", small_training(checkpoint_every=20))
        return self.start("train", "plan.json", *CUDA, "--workers", "4", "--share-gpu", "--gpu-path", path,
                          "--json", *options)

    def test_losses_are_those_of_messages(self):
        self.make_plan("--codec", "none", cluster="two-racks-40g")
        runs = []
        for path in ("staged", "nccl", "hybrid"):
            result = self.finish(self.train(path))
            self.assertEqual(result.status, 0, str(result))
            runs.append(result.json)
        self.assertEqual([run["transport"] for run in runs],
                         ["pinned memory and ucx", "NCCL",
                          "NCCL inside hosts, pinned memory between them and ucx"])
        for run in runs:
            self.assertTrue(run["parameters_agree"])
            for ours, theirs in zip(run["losses"], runs[0]["losses"], strict=True):
                self.assertAlmostEqual(ours, theirs, delta=1e-4)

    def validate(self, *options):
        return self.rackrail_json("validate", *CUDA, "--share-gpu", "--gpu-path", "hybrid", "--steps", "6",
                                  *options)

    def test_predictions_of_nccl_inside_hosts_have_a_rate_for_each_tier(self):
        report = self.validate("--workers", "4")
        self.assertEqual((report["hosts"], report["transport"]),
                         (2, "NCCL inside hosts, pinned memory between them and ucx"))
        self.assertTrue(report["parameters_agree"])
        for where in ("path", "inside"):
            self.assertGreater(report[f"{where}_bytes_per_s"], 0)
        for how in ("predicted", "measured"):
            self.assertAlmostEqual(report[f"{how}_hidden_share"],
                                   1 - report[f"{how}_exposed_s"] / report["sums"][f"{how}_s"])

    def test_sums_may_be_encoded_between_hosts(self):
        plain = self.validate("--workers", "4")
        report = self.validate("--workers", "4", "--codec", "fp16", "--schedule", "hierarchical")
        self.assertNotEqual(plain["codec"], "fp16")
        self.assertEqual((report["codec"], report["schedule"]), ("fp16", "hierarchical"))
        self.assertTrue(report["parameters_agree"])

    def test_hosts_of_one_worker_have_nothing_inside(self):
        report = self.validate("--workers", "2")
        self.assertEqual(report["hosts"], 2)
        self.assertNotIn("inside_bytes_per_s", report)

    def test_hosts_may_differ_by_a_worker(self):
        report = self.validate("--workers", "3")
        self.assertEqual((report["hosts"], report["workers"]), (2, 3))
        self.assertTrue(report["parameters_agree"])

    def test_those_who_are_left_go_on_with_communicators_of_their_own(self):
        self.make_plan("--codec", "none", cluster="two-racks-40g")
        for path in ("nccl", "hybrid"):
            with self.subTest(path=path):
                running = self.train(path, "--steps", "3000", "--checkpoints", path, "--on-loss",
                                     "continue", "--workload", "workload.yaml",
                                     "--heartbeat-timeout", "10 s")
                self.wait_for_checkpoint(path)
                os.kill(self.workers()[1], signal.SIGKILL)
                result = self.finish(running)
                self.assertEqual(result.status, 0, str(result))
                run = result.json
                self.assertEqual((run["workers"], len(run["losses"])), (3, 3000))
                self.assertTrue(run["parameters_agree"])
                (loss,) = run["losses_of_workers"]
                self.assertEqual(loss["lost"], ["host1"])
                self.assertLess(loss["resumed_after_s"], RESUMED)
                self.assert_no_processes_left()

    def test_scripts_gpu_check_kills_a_worker_and_the_others_go_on(self):
        """As it does on a GPU: two nodes of two ranks, 8 bits between them."""
        cluster = self.write("two-nodes.yaml", GPU_CHECK["TWO_NODES_CLUSTER"])
        self.make_plan("--codec", "int8", "--schedule", "hierarchical", cluster=cluster)
        self.write("small.yaml", small_training(checkpoint_every=20))
        result = self.finish(self.start(
            "-c", GPU_CHECK["KILL_WORKER"], "saved", os.environ["RACKRAIL_COMMAND"], "train", "plan.json",
            *CUDA, "--cluster", cluster, "--workers", "4", "--share-gpu", "--gpu-path", "hybrid", "--json",
            "--steps", "1000", "--on-loss", "continue", "--workload", "workload.yaml", "--checkpoints", "saved",
            "--heartbeat-timeout", "10 s", program=(sys.executable,)))
        self.assertEqual(result.status, 0, str(result))
        run = result.json
        self.assertEqual((run["workers"], len(run["losses"]), len(run["losses_of_workers"])), (3, 1000, 1))
        self.assertTrue(run["parameters_agree"])
        self.assert_no_processes_left()


class SharedGpu(SmallTrainingTest):
    """NCCL refuses two ranks on one GPU of one host: each must take itself for a host, however it was
    started, before NCCL is called."""

    RANKS = 2

    def environment(self, **variables):
        return super().environment(**{
            "RACKRAIL_NCCL_LIBRARY": RECORDING_NCCL, "NCCL_HOSTID": "everybody",
            "RACKRAIL_RECORDED_NCCL": str(self.folder / "recorded"), **variables})

    def recorded(self):
        """What was said, sorted: the call, the host, the interface."""
        return sorted(line.split() for line in (self.folder / "recorded").read_text().splitlines())

    def assert_every_rank_is_a_host(self):
        self.assertEqual(self.recorded(), [
            ["id", "rackrail-rank-0", "lo"],
            *(["join", f"rackrail-rank-{rank}", "lo"] for rank in range(self.RANKS))])

    def launched(self, variables, *options):
        self.make_plan()
        processes = [self.start("train", "plan.json", *CUDA, *options, "--gpu-path", "nccl",
                                variables={**TOKEN, **variables(rank)})
                     for rank in range(self.RANKS)]
        return [self.finish(process) for process in processes]

    def test_local_workers(self):
        self.make_plan()
        result = self.rackrail("train", "plan.json", *CUDA, "--workers", str(self.RANKS), "--share-gpu",
                               "--gpu-path", "nccl", status=1)
        self.assertIn("NCCL: ncclCommInitRankConfig", result.err)
        self.assert_every_rank_is_a_host()

    def test_launched_by_others(self):
        port = harness.free_ports(6)
        here = {"RACKRAIL_COORDINATOR": f"127.0.0.1:{port}"}
        ways = {
            "torchrun": lambda rank: {
                "RANK": str(rank), "WORLD_SIZE": str(self.RANKS), "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port + 1)},
            "Open MPI": lambda rank: {
                "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(self.RANKS),
                "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), **here},
            "PMI": lambda rank: {
                "PMI_RANK": str(rank), "PMI_SIZE": str(self.RANKS), **here},
            "Slurm": lambda rank: {
                "SLURM_PROCID": str(rank), "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7",
                "SLURM_STEP_NUM_TASKS": str(self.RANKS), "SLURM_LOCALID": str(rank), **here},
            "rackrail": lambda rank: {
                "RACKRAIL_RANK": str(rank), "RACKRAIL_WORLD_SIZE": str(self.RANKS), **here},
        }
        for name, variables in ways.items():
            with self.subTest(launcher=name):
                (self.folder / "recorded").unlink(missing_ok=True)
                results = self.launched(variables, "--share-gpu")
                self.assertTrue(all(result.status == 1 for result in results), str(results))
                self.assert_every_rank_is_a_host()

    def test_a_process_with_threads_goes_by_the_transport_unless_nccl_is_asked_for(self):
        """Its environment cannot be set any more, which only NCCL needs."""
        self.make_plan()
        thread = str(Path(RECORDING_NCCL).with_name("extra_thread.so"))
        port = harness.free_ports(4)
        for offset, path in enumerate(("staged", "auto", "nccl")):
            with self.subTest(path=path):
                processes = [
                    self.start("train", "plan.json", *CUDA, "--share-gpu", "--gpu-path", path,
                               "--cluster", "two-hosts.csv", "--json",
                               variables={**TOKEN, "LD_PRELOAD": thread, "RACKRAIL_RANK": str(rank),
                                          "RACKRAIL_WORLD_SIZE": str(self.RANKS),
                                          "RACKRAIL_COORDINATOR": f"127.0.0.1:{port + offset}"})
                    for rank in range(self.RANKS)]
                results = [self.finish(process) for process in processes]
                for result in results:
                    self.assertEqual(result.status, 1 if path == "nccl" else 0, str(result))
                if path == "nccl":
                    self.assertIn("the process has other threads already", results[0].err)
                else:
                    self.assertIn("pinned memory", results[0].json["transport"])
                    self.assertEqual(path == "auto", "has other threads" in str(results[0].json["notes"]))

    def test_sums_of_validate(self):
        self.rackrail("validate", *CUDA, "--share-gpu", "--gpu-path", "nccl", "--workers",
                      str(self.RANKS), "--steps", "2", status=1)
        self.assert_every_rank_is_a_host()

    def test_without_sharing_the_host_is_what_the_user_said(self):
        self.make_plan()
        self.rackrail("train", "plan.json", *CUDA, "--workers", str(self.RANKS), "--gpu-path", "nccl",
                      status=1)
        self.assertFalse((self.folder / "recorded").exists())  # there is one GPU for two ranks


if __name__ == "__main__":
    harness.main()
