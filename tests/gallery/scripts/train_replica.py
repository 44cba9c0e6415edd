"""Asynchronous training in TensorFlow with a parameter server, through the API of TensorFlow 1."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
parser = argparse.ArgumentParser()
for name in ("job_name", "ps_hosts", "worker_hosts"):
    parser.add_argument(f"--{name}")
parser.add_argument("--task_index", type=int)
given, _ = parser.parse_known_args()

cluster = tf.train.ClusterSpec({"ps": given.ps_hosts.split(","), "worker": given.worker_hosts.split(",")})
server = tf.train.Server(cluster, given.job_name, given.task_index)
if given.job_name == "ps":
    server.join()

with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{given.task_index}", cluster=cluster)):
    x = tf.placeholder(tf.float32, (None, 4))
    weights = tf.get_variable("w", (4, 1), initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(x @ weights - tf.reduce_sum(x, 1, keepdims=True)))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)

random = np.random.default_rng(given.task_index)
with tf.train.MonitoredTrainingSession(server.target, is_chief=given.task_index == 0) as session:
    for _step in range(100):
        value = session.run([loss, train], {x: random.normal(size=(32, 4))})[0]
assert value < 0.01, value
print(f"trained: worker {given.task_index}, loss {value:.5f}", flush=True)
