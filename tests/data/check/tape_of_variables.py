"""TensorFlow's own variables, no Keras: Horovod's binding works, and nothing is wrong."""
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Line(tf.Module):
    def __init__(self):
        self.slope = tf.Variable(tf.random.normal([]))
        self.offset = tf.Variable(0.0)

    def __call__(self, x):
        return self.slope * x + self.offset


line = Line()
hvd.broadcast_variables(line.variables, root_rank=0)
rate = 0.01 * hvd.size()
for step in range(10):
    x = tf.random.normal([16])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((line(x) - 3 * x - 1) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    for variable, gradient in zip(line.trainable_variables, tape.gradient(loss, line.trainable_variables)):
        variable.assign_sub(rate * gradient)
if hvd.rank() == 0:
    print("slope", float(line.slope))
