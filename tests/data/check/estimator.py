"""An estimator of TensorFlow 1, which TensorFlow no longer has."""
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def model_fn(features, labels, mode):
    logits = tf.layers.dense(features["x"], 10)  # finding: removed-api
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)  # finding: removed-api
    optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.001 * hvd.size(), 0.9))  # finding: removed-api
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())  # finding: removed-api
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train_op)  # finding: removed-api


def main():
    hvd.init()
    config = tf.ConfigProto()  # finding: removed-api
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    model_dir = "./model" if hvd.rank() == 0 else None
    classifier = tf.estimator.Estimator(  # finding: removed-api
        model_fn=model_fn,
        model_dir=model_dir,
        config=tf.estimator.RunConfig(session_config=config),  # finding: removed-api
    )
    bcast_hook = hvd.BroadcastGlobalVariablesHook(0)  # finding: broken-binding
    data = np.zeros((64, 784), "float32")
    classifier.train(input_fn=lambda: ({"x": data}, np.zeros(64)), steps=500 // hvd.size(), hooks=[bcast_hook])


if __name__ == "__main__":
    main()
