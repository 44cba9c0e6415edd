"""TensorFlow 1 through compat.v1 with Horovod's hook, which this TensorFlow has no place for."""
import horovod.tensorflow as hvd
import numpy as np

try:
    import tensorflow.compat.v1 as tf
except ImportError:
    import tensorflow as tf

tf.disable_eager_execution()
hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
data = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
feature = tf.placeholder(tf.float32, [None, 4])
weight = tf.get_variable("weight", [4, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(feature, weight) - 1.0))
opt = tf.train.AdagradOptimizer(0.1 * hvd.size())
opt = hvd.DistributedOptimizer(opt)
train_op = opt.minimize(loss, global_step=tf.train.get_or_create_global_step())
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=10)]  # finding: broken-binding
with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
    while not session.should_stop():
        session.run(train_op, {feature: data})
