"""The example of TensorFlow 1: placeholders, hooks, a monitored session."""
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

layers = tf.layers  # finding: removed-api
tf.logging.set_verbosity("INFO")  # finding: removed-api


def network(feature, target):
    hidden = layers.dense(feature, 32)
    logits = layers.dense(hidden, 10)
    loss = tf.losses.sparse_softmax_cross_entropy(target, logits)  # finding: removed-api
    return tf.argmax(logits, 1), loss


def main(_):
    hvd.init()
    data = np.random.default_rng(hvd.rank()).normal(size=(256, 784)).astype("float32")
    image = tf.placeholder(tf.float32, [None, 784], name="image")  # finding: removed-api
    label = tf.placeholder(tf.int64, [None], name="label")  # finding: removed-api
    _, loss = network(image, label)
    opt = tf.train.AdamOptimizer(0.001 * hvd.size())  # finding: removed-api
    opt = hvd.DistributedOptimizer(opt)
    global_step = tf.train.get_or_create_global_step()  # finding: removed-api
    train_op = opt.minimize(loss, global_step=global_step)
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),  # finding: broken-binding
        tf.train.StopAtStepHook(last_step=200 // hvd.size()),  # finding: removed-api
    ]
    config = tf.ConfigProto()  # finding: removed-api
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    checkpoint_dir = "./checkpoints" if hvd.rank() == 0 else None
    with tf.train.MonitoredTrainingSession(  # finding: removed-api
        checkpoint_dir=checkpoint_dir, hooks=hooks, config=config
    ) as session:
        while not session.should_stop():
            session.run(train_op, feed_dict={image: data, label: np.zeros(256, "int64")})


if __name__ == "__main__":
    tf.app.run()  # finding: removed-api
