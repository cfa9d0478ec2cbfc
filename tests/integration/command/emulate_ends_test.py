"""Whatever ends an emulated network: signals, kills, and what others left."""

import random
import signal
import subprocess
import time

import harness
from emulation import EmulationTest, names_of


class Ends(EmulationTest):
    """Whatever ends it: nothing stays."""

    # A process that no signal of the kernel ends with its parents.
    COMMAND = ("sh", "-c", "(setsid sleep 1000 &) ; exec sleep 1000")

    def start_running(self):
        process = self.start("emulate", "pair.csv", "--", *self.COMMAND)
        self.assertTrue(harness.wait_until(
            lambda: sum(harness.command_line(pid).startswith("sleep") for pid in self.processes()
                        ) == 4, 60), "the command does not run")
        return process

    def test_another_emulation_is_none_of_a_tests_business(self):
        other = subprocess.Popen([harness.COMMAND, "emulate", "pair.csv", "--", "sleep", "1000"],
                                 cwd=self.folder, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        try:
            self.assertTrue(harness.wait_until(lambda: names_of(other.pid), 60))
            self.assert_nothing_left()
            process = self.start_running()
            with self.assertRaisesRegex(AssertionError, "processes were left behind"):
                self.assert_nothing_left()
            process.kill()
            process.wait()
            self._end_what_is_left()
            with self.assertRaisesRegex(AssertionError, f"rackrail-{process.pid}-"):
                self.assert_nothing_left()
            self.assertEqual(self.rackrail_json("emulate", "--clean")["names"], 4)
            process.communicate()
            self.assertTrue(names_of(other.pid))
            self.assert_nothing_left()
        finally:
            other.terminate()
            other.wait(30)

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                process = self.start_running()
                self.assertTrue(names_of(process.pid))
                process.send_signal(number)
                self.assertEqual(self.finish(process, 30).status, 128 + number)
                self.assert_nothing_left()

    def test_nobody_reads_what_it_prints(self):
        process = self.start("emulate", "pair.csv", "--", "sh", "-c",
                             "while sleep 0.05; do echo line; done")
        self.assertTrue(process.stdout.readline())
        process.stdout.close()
        self.assertEqual(process.wait(60), 1)
        self.assertIn("standard output could not be written", process.stderr.read())
        process.stderr.close()
        self.assert_nothing_left()

    def test_signals_to_what_stands_on_it(self):
        plan = self.make_plan("plan.json", cluster="pair.csv")
        for arguments in (("train", plan, "--emulate", "pair.csv", "--steps", 400),
                          ("train", "--emulate", "pair.csv", "--steps", 400),
                          ("validate", "pair.csv", "--steps", 400)):
            for after in (1, 6):  # while links are measured, and while something runs
                with self.subTest(command=arguments[:2], after=after):
                    process = self.start(*arguments)
                    time.sleep(after)
                    process.send_signal(signal.SIGTERM)
                    self.assertEqual(self.finish(process, 30).status, 128 + signal.SIGTERM)
                    self.assert_nothing_left()

    def test_kill_while_it_runs(self):
        process = self.start_running()
        process.kill()
        process.wait()
        # The setsid processes outlive it, in their namespaces.
        self.assertTrue(self.processes())
        left = self.rackrail_json("emulate", "--clean")
        process.communicate()
        self.assertEqual(left["processes"], 2)
        self.assertEqual(left["names"], 4)
        self.assert_nothing_left()

    def test_the_next_start_removes_what_a_killed_one_left(self):
        process = self.start_running()
        process.kill()
        process.wait()
        self.assertTrue(harness.wait_until(lambda: len(self.processes()) == 2, 5))
        self.assertEqual(len(self.own_names()), 4)
        self.rackrail("emulate", "pair.csv", "--", "true")
        process.communicate()
        self.assert_nothing_left()

    def test_clean_leaves_the_living_alone(self):
        process = self.start_running()
        self.assertEqual(self.rackrail_json("emulate", "--clean")["processes"], 0)
        self.assertIsNone(process.poll())
        self.assertEqual(len(names_of(process.pid)), 4)
        process.terminate()
        self.finish(process, 30)
        self.assert_nothing_left()

    def test_kill_at_random_moments(self):
        seed = random.randrange(1 << 30)
        moments = random.Random(seed)
        for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            after = moments.uniform(0, 3) * moments.random()
            message = f"seed {seed}: {number.name} after {after:.3f} s"
            process = self.start("emulate", "racks.csv", "--", *self.COMMAND)
            time.sleep(after)
            process.send_signal(number)
            process.wait(timeout=300)
            self.rackrail("emulate", "--clean")
            process.communicate()  # the ranks' commands had its pipes, where they had started
            harness.wait_until(lambda: not self.own_names(), 2)
            self.assert_nothing_left(message)


if __name__ == "__main__":
    harness.main()
