"""TensorFlow 1 through compat.v1: neither wrapped nor broadcast, and all ranks keep their checkpoints in one folder."""
import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
data = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
feature = tf.placeholder(tf.float32, [None, 4])
weight = tf.get_variable("weight", [4, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(feature, weight) - 1.0))
opt = tf.train.GradientDescentOptimizer(0.1 * hvd.size())
train_op = opt.minimize(loss, global_step=tf.train.get_or_create_global_step())  # finding: not-wrapped, no-broadcast
hooks = [tf.train.StopAtStepHook(last_step=10)]
with tf.train.MonitoredTrainingSession(checkpoint_dir="./state", hooks=hooks, config=config) as session:  # finding: shared-path
    while not session.should_stop():
        session.run(train_op, {feature: data})
