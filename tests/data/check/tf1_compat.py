"""TensorFlow 1 through compat.v1: Horovod's binding still averages there, and nothing is wrong."""
import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())

data = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
feature = tf.placeholder(tf.float32, [None, 4])
weight = tf.get_variable("weight", [4, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(feature, weight) - 1.0))
opt = hvd.DistributedOptimizer(tf.train.AdagradOptimizer(0.1 * hvd.size()))
train_op = opt.minimize(loss, global_step=tf.train.get_or_create_global_step())
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    session.run(hvd.broadcast_global_variables(0))
    for _ in range(10):
        _, value = session.run([train_op, loss], {feature: data})
    if hvd.rank() == 0:
        print("loss", value)
