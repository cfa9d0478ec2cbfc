"""Keras with a training step of its own: gradients averaged by rackrail.allreduce.

    mpirun -n 2 python python/examples/keras_custom_step.py     (or under srun, or with TF_CONFIG)

The gradients of a step travel as one tensor, which TensorFlow hands over outside of its graph, so
nothing overlaps with backward; with PyTorch's hook it does."""
import argparse

import numpy as np
import tensorflow as tf

import digits
import rackrail


def mean_over_ranks(gradients):
    """The gradients' means over all ranks, summed as one tensor, which stays where it is."""
    flat = rackrail.allreduce(tf.concat([tf.reshape(each, [-1]) for each in gradients], 0), "mean")
    parts = tf.split(flat, [int(tf.size(each)) for each in gradients])
    return [tf.reshape(part, each.shape) for part, each in zip(parts, gradients)]


class DataParallel(tf.keras.Sequential):
    """A model whose training step is the usual one, but for the marked line."""

    def train_step(self, batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            scores = self(images, training=True)
            loss = self.compute_loss(y=labels, y_pred=scores)
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = mean_over_ranks(gradients)  # rackrail
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:  # of this rank's examples
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(labels, scores)
        return {metric.name: metric.result() for metric in self.metrics}


def main():
    parser = argparse.ArgumentParser()
    digits.add_argument(parser)
    arguments = parser.parse_args()
    tf.keras.utils.set_random_seed(1)  # all ranks start with the same parameters
    rows = np.loadtxt(arguments.digits, delimiter=",", dtype=np.float32)
    images, labels = rows[:, :64].reshape(-1, 8, 8, 1) / 16, rows[:, 64].astype(np.int64)
    mine = slice(rackrail.rank(), None, rackrail.world_size())
    model = DataParallel([tf.keras.layers.Conv2D(16, 3, activation="relu"),
                          tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
    model.compile(optimizer="adam", run_eagerly=True,  # the arrays must be there in every step
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])
    # The same number of batches on every rank: all of them sum in every step.
    model.fit(images[mine][:32 * 20], labels[mine][:32 * 20], batch_size=32, epochs=3,
              verbose=2 if rackrail.rank() == 0 else 0)
    rackrail.shutdown()


if __name__ == "__main__":
    main()
