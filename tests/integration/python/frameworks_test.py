"""rackrail beside the frameworks whose arrays it takes: TensorFlow with Keras, JAX, where they are.

They are large, so no package of this project asks for them. To run these tests with them:
RACKRAIL_LIBRARY=build/dev/lib/librackrail.so PYTHON-OF-AN-ENVIRONMENT-THAT-HAS-THEM frameworks_test.py
"""

import re
import shutil
import subprocess
import unittest

from ranks import PACKAGE, RankTest, harness, python_with

KERAS, NO_KERAS = python_with("tensorflow")
JAX, NO_JAX = python_with("jax")
ANY, NO_NUMPY = python_with("numpy")
COMPILER = shutil.which("cc")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}

WITH_TENSORFLOW = """
{imports}
import numpy as np
rank, ranks = rackrail.rank(), rackrail.world_size()
mine = tf.range(1000, dtype=tf.float32) * (rank + 1)
total = rackrail.allreduce(mine)
assert isinstance(total, tf.Tensor), type(total)
assert (total.numpy() == np.arange(1000) * ranks * (ranks + 1) / 2).all()
assert (mine.numpy() == np.arange(1000) * (rank + 1)).all()
assert (rackrail.allreduce(tf.Variable([1.0, 2.0]), "mean").numpy() == [1, 2]).all()
rackrail.shutdown()
print("good")
"""
WITH_JAX = """
import jax, jax.numpy as jnp, numpy as np, rackrail
rank, ranks = rackrail.rank(), rackrail.world_size()
mine = jnp.arange(1000, dtype=jnp.float32) * (rank + 1)
total = rackrail.allreduce(mine)
assert isinstance(total, jax.Array), type(total)
assert (np.asarray(total) == np.arange(1000) * ranks * (ranks + 1) / 2).all()
assert (np.asarray(mine) == np.arange(1000) * (rank + 1)).all()
gradient = jax.grad(lambda weights: jnp.sum(weights ** 2))(jnp.ones((2, 3)) * (rank + 1))
assert (np.asarray(rackrail.allreduce(gradient, "mean")) == np.full((2, 3), ranks + 1)).all()
rackrail.shutdown()
print("good")
"""
# What TensorFlow does to whoever uses protobuf or gRPC as well, in another version.
CROWDING = """
#include <stdlib.h>
void grpc_init(void) { abort(); }
void _ZN6google8protobuf11MessageLiteD2Ev(void) { abort(); }
void _ZN6google8protobuf8internal20RepeatedPtrFieldBase18AddOutOfLineHelperEPv(void) { abort(); }
"""
CROWDED = """
import ctypes
ctypes.CDLL("./libcrowding.so", mode=ctypes.RTLD_GLOBAL)
import numpy as np, rackrail
assert (rackrail.allreduce(np.ones(10, np.float32)) == rackrail.world_size()).all()
rackrail.shutdown()
print("good")
"""


class Frameworks(RankTest):
    def check_good(self, python, text):
        self.PYTHON = python
        for result in self.run_ranks(2, self.write("program.py", text), **QUIET):
            self.assertEqual(result.out, "good\n", str(result))

    @unittest.skipUnless(KERAS, NO_KERAS)
    def test_tensorflow_whichever_comes_first(self):
        for imports in ("import tensorflow as tf, rackrail", "import rackrail, tensorflow as tf"):
            with self.subTest(imports=imports):
                self.check_good(KERAS, WITH_TENSORFLOW.format(imports=imports))

    @unittest.skipUnless(KERAS, NO_KERAS)
    def test_the_keras_example_learns(self):
        self.PYTHON = KERAS
        first, second = self.run_ranks(2, PACKAGE / "examples" / "keras_custom_step.py", **QUIET)
        accuracies = [float(text) for text in re.findall(r"accuracy: ([0-9.]+)", first.out)]
        self.assertEqual(len(accuracies), 3, str(first))
        self.assertGreater(accuracies[-1], 0.8)
        self.assertEqual(second.out, "")

    @unittest.skipUnless(ANY, NO_NUMPY)
    def test_a_copy_of_the_keras_example_says_what_it_looks_for(self):
        self.PYTHON = ANY
        example = PACKAGE / "examples" / "keras_custom_step.py"
        copy = self.write("there/else/keras_custom_step.py", example.read_text(encoding="utf-8"))
        self.write("there/else/digits.py", example.with_name("digits.py").read_text(encoding="utf-8"))
        # What its model is made of, before which the file is looked for.
        self.write("there/else/tensorflow.py", "class keras:\n    class Sequential: pass\n")
        result = self.run_python(copy, status=2)
        self.assertIn(f"found no file {self.folder}/configs/data/digits.csv, expected the digits of"
                      " rackrail's source tree: say --digits RACKRAIL/configs/", result.err)
        self.assertNotIn("Traceback", result.err)

    @unittest.skipUnless(JAX, NO_JAX)
    def test_jax(self):
        self.check_good(JAX, WITH_JAX)

    @unittest.skipUnless(ANY, NO_NUMPY)
    @unittest.skipUnless(COMPILER, "no C compiler")
    def test_other_librarys_names_are_not_taken_for_ours(self):
        subprocess.run([COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o",
                        str(self.folder / "libcrowding.so")], input=CROWDING, text=True, check=True)
        self.check_good(ANY, CROWDED)


if __name__ == "__main__":
    harness.main()
