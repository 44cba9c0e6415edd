"""Two ranks of Horovod average gradients in TensorFlow."""

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
weights = tf.Variable(tf.zeros((4, 1)))
hvd.broadcast_variables([weights], root_rank=0)
tf.random.set_seed(hvd.rank())
for _ in range(60):
    x = tf.random.normal((32, 4))  # (B, 4)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights - tf.reduce_sum(x, 1, keepdims=True)))
    gradient = hvd.allreduce(tape.gradient(loss, weights))
    weights.assign_sub(0.1 * gradient)
assert float(loss) < 0.01, float(loss)
print(f"trained: rank {hvd.rank()} of {hvd.size()}, loss {float(loss):.5f}", flush=True)
