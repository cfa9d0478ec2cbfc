"""Who may join a job: the job's token and where it never stands, certificates."""

import shutil
import subprocess
import unittest
from pathlib import Path

import harness
from training import TOKEN, TrainingTest

SECRET = TOKEN["RACKRAIL_JOB_TOKEN"]


def command_lines():
    """Of all processes of the machine, whoever started them, by id."""
    return {entry.name: harness.command_line(entry.name) for entry in Path("/proc").iterdir()
            if entry.name.isdigit()}


class AdmissionTest(TrainingTest):
    def setUp(self):
        super().setUp()
        self.plan = self.two_host_plan()

    def start_rank(self, rank, port, variables, *options):
        return self.start("train", self.plan, "--steps", "5", "--json", *options, variables={
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **variables})


class Token(AdmissionTest):
    def assert_on_no_command_line(self, process, token=None):
        """Of a running job, which is ended then."""
        def is_training():
            return len(self.workers()) == 2 and any((self.folder / "saved").glob("step-*"))
        self.assertTrue(harness.wait_until(is_training, 100), "no training to look at")
        if token is None:  # one that the command made for its workers
            token = harness.variable_of(self.workers()[1], "RACKRAIL_JOB_TOKEN")
            self.assertGreater(len(token), 20)
        lines = command_lines()
        self.assertTrue({str(pid) for pid in self.workers().values()} <= set(lines))
        self.assertEqual([line for line in lines.values() if token in line], [])
        process.terminate()
        self.finish(process)
        self.assert_no_processes_left()

    def test_it_stands_on_no_command_line_of_a_running_job(self):
        training = self.training_with_checkpoints_every(2)
        self.write("secret", SECRET + "\n")
        (self.folder / "secret").chmod(0o600)
        for token, options, variables in ((None, (), {}), (SECRET, (), TOKEN),
                                          (SECRET, ("--token-file", "secret"), {})):
            with self.subTest(options=options, variables=variables):
                shutil.rmtree(self.folder / "saved", ignore_errors=True)
                self.assert_on_no_command_line(self.start(
                    "train", self.plan, "--cluster", "two-hosts.csv", "--training", training,
                    "--steps", 5000, "--checkpoints", "saved", *options, variables=variables), token)

    def test_it_is_not_taken_from_one(self):
        for command in (("train", self.plan), ("job", "status", "127.0.0.1:1"),
                        ("emulate", "two-hosts.csv")):
            for option in ("--token", "--job-token"):
                self.assert_bad_input(*command, option, SECRET, found=option)


class Network(AdmissionTest):
    def test_a_secret_crosses_it_by_somebodys_word_only(self):
        port = str(harness.free_ports(2))
        beyond = {**TOKEN, "MASTER_ADDR": "192.0.2.1"}  # RFC 5737: of nobody, so nothing can listen there
        refused = self.finish(self.start_rank(0, port, beyond))
        self.assertEqual(refused.status, 2, str(refused))
        self.assertRegex(refused.error["message"], "certificates.*RACKRAIL_INSECURE=1")
        for options, variables in ((("--insecure",), {}), ((), {"RACKRAIL_INSECURE": "1"})):
            with self.subTest(options=options):
                result = self.finish(self.start_rank(0, port, {**beyond, **variables}, *options))
                self.assertIn("cannot listen at 192.0.2.1", result.error["message"])

    def test_certificates_of_the_command_let_ranks_in(self):
        self.rackrail("certificates", "-o", "certificates")
        folder = self.folder / "certificates"
        self.assertEqual(sorted(each.name for each in folder.iterdir()), ["ca.pem", "cert.pem", "key.pem"])
        self.assertEqual((folder / "key.pem").stat().st_mode & 0o777, 0o600)
        port = str(harness.free_ports(2))
        ranks = [self.start_rank(rank, port, {**TOKEN, "RACKRAIL_TLS": str(folder)}) for rank in range(2)]
        results = [self.finish(each) for each in ranks]
        self.assertEqual([each.status for each in results], [0, 0], str(results))


@unittest.skipUnless(shutil.which("openssl"), "no openssl, which makes the test's certificates")
class Tls(AdmissionTest):
    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], cwd=self.folder, check=True,
                       capture_output=True)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-nodes", "-subj", f"/CN={name}", "-days", 2, "-keyout", f"{name}.key",
                     "-out", f"{name}.pem")
        return name

    def certificate(self, folder, authority, name):
        """Variables of who has such a one."""
        place = self.write(f"{folder}/names", f"subjectAltName=DNS:{name}\n").parent
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-nodes", "-subj", f"/CN={name}", "-keyout", place / "key.pem", "-out",
                     place / "request.pem")
        self.openssl("x509", "-req", "-days", 1, "-in", place / "request.pem", "-CA",
                     f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial",
                     "-extfile", place / "names", "-out", place / "cert.pem")
        shutil.copy(self.folder / f"{authority}.pem", place / "ca.pem")
        (place / "key.pem").chmod(0o600)
        return {**TOKEN, "RACKRAIL_TLS": str(place)}

    def test_ranks_with_certificates_train_and_a_stranger_is_told_at_once(self):
        ours, theirs = self.authority("ours"), self.authority("theirs")
        leader = self.certificate("leader", ours, "rackrail-coordinator")
        worker = self.certificate("worker", ours, "worker")
        # It has the token and a certificate of the right name, but of another authority.
        stranger = self.certificate("stranger", theirs, "worker")
        port = str(harness.free_ports(2))
        first = self.start_rank(0, port, leader)
        refused = self.finish(self.start_rank(1, port, stranger))
        self.assertEqual(refused.status, 2, str(refused))
        self.assertEqual(refused.out, "")
        self.assertEqual(refused.err.count("\n"), 1, refused.err)
        self.assertRegex(refused.error["message"],
                         "RACKRAIL_TLS: found certificates that do not fit those of the coordinator "
                         "at .*, expected ones that the job's authority has signed")
        # Without any, nobody answers it; it is not let in, and the job still waits.
        plain = self.start_rank(1, port, TOKEN)
        self.assertFalse(harness.wait_until(lambda: plain.poll() is not None or
                                            first.poll() is not None, 3), "it was let in")
        plain.terminate()
        self.finish(plain)
        second = self.finish(self.start_rank(1, port, worker))
        self.assertEqual(second.status, 0, str(second))
        result = self.finish(first)
        self.assertEqual(result.status, 0, str(result))
        self.assert_same_as_local(result.json, self.plan, steps=5)


if __name__ == "__main__":
    harness.main()
