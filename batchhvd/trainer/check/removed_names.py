"""What Keras 3 and TensorFlow 2 no longer have, and what replaces it; the tests try each entry."""

from __future__ import annotations

_LAYERS = "import it from keras.layers"
_NO_SESSION = "TensorFlow runs without sessions: leave it out"
_VERSION_1 = "use its name in tensorflow.compat.v1, or write the step with tf.function"
_HOOKS = "train with model.fit, and use keras.callbacks"
_KERAS_OPTIMIZER = "use keras.optimizers"

#: Modules and names of the package keras; ``tf.keras`` still has some of them.
KERAS = {
    "keras.preprocessing.image.ImageDataGenerator": "use augmentation layers (keras.layers.RandomTranslation, "
    "RandomFlip), batchhvd.trainer.fit(..., augment=...), or tf.keras.preprocessing.image.ImageDataGenerator",
    "keras.preprocessing.text": "use keras.layers.TextVectorization",
    "keras.preprocessing.sequence.TimeseriesGenerator": "use keras.utils.timeseries_dataset_from_array",
    "keras.wrappers.scikit_learn": "use keras.wrappers.SKLearnClassifier or SKLearnRegressor",
    "keras.utils.np_utils": "use keras.utils.to_categorical",
    "keras.utils.vis_utils": "use keras.utils.plot_model",
    "keras.utils.generic_utils": "import the name from keras.utils",
    "keras.utils.multi_gpu_model": "start one rank for each GPU",
    "keras.utils.HDF5Matrix": "read the file with h5py",
    "keras.layers.core": _LAYERS,
    "keras.layers.convolutional": _LAYERS,
    "keras.layers.normalization": _LAYERS,
    "keras.layers.merge": _LAYERS,
    "keras.layers.recurrent": _LAYERS,
    "keras.layers.embeddings": _LAYERS,
    "keras.layers.pooling": _LAYERS,
    "keras.layers.wrappers": _LAYERS,
    "keras.layers.advanced_activations": _LAYERS,
    "keras.layers.experimental": _LAYERS,
    "keras.layers.CuDNNLSTM": "use keras.layers.LSTM, which uses cuDNN by itself",
    "keras.layers.CuDNNGRU": "use keras.layers.GRU, which uses cuDNN by itself",
    "keras.layers.LocallyConnected1D": "write the layer yourself with keras.ops",
    "keras.layers.LocallyConnected2D": "write the layer yourself with keras.ops",
    "keras.layers.ThresholdedReLU": "use keras.layers.ReLU(threshold=...)",
    "keras.mixed_precision.experimental": "use keras.mixed_precision.set_global_policy",
    "keras.losses.Reduction": 'pass reduction="none" or "sum" as a string',
    "keras.models.model_from_yaml": "use keras.models.model_from_json",
    "keras.callbacks.callbacks": "import the name from keras.callbacks",
    "keras.constraints.maxnorm": "use keras.constraints.MaxNorm",
    "keras.regularizers.l1l2": "use keras.regularizers.L1L2",
    "keras.experimental": "import the name from keras",
    "keras.engine": "import the name from keras",
    "keras.objectives": "use keras.losses",
    "keras.premade": "build the model from keras.layers",
    "keras.backend.set_session": "Keras runs without sessions: leave it out",
    "keras.backend.get_session": "Keras runs without sessions: leave it out",
    "keras.backend.tensorflow_backend": "use keras.backend",
    "keras.backend.get_value": "use keras.ops.convert_to_numpy",
    "keras.backend.set_value": "use variable.assign(value), or set optimizer.learning_rate",
    "keras.backend.learning_phase": "pass training=True or False to the call",
    "keras.backend.set_learning_phase": "pass training=True or False to the call",
}
#: The names of `KERAS` that ``tf.keras`` still has.
KEPT_BY_TENSORFLOW = (
    "keras.preprocessing.image.ImageDataGenerator",
    "keras.preprocessing.text",
    "keras.preprocessing.sequence.TimeseriesGenerator",
    "keras.backend.get_value",
    "keras.losses.Reduction",
)

#: Names of TensorFlow 1, without the leading ``tensorflow.``.
TENSORFLOW = {
    "ConfigProto": "use tf.config.set_visible_devices and tf.config.experimental.set_memory_growth",
    "GPUOptions": "use tf.config.set_visible_devices and tf.config.experimental.set_memory_growth",
    "Session": _NO_SESSION,
    "InteractiveSession": _NO_SESSION,
    "placeholder": "use keras.Input",
    "global_variables_initializer": "variables initialize themselves: leave it out",
    "local_variables_initializer": "variables initialize themselves: leave it out",
    "global_variables": "use model.variables",
    "trainable_variables": "use model.trainable_variables",
    "get_variable": "use tf.Variable",
    "variable_scope": "use tf.Variable, and name_scope",
    "get_default_graph": _NO_SESSION,
    "reset_default_graph": "use keras.backend.clear_session",
    "set_random_seed": "use keras.utils.set_random_seed",
    "random.set_random_seed": "use keras.utils.set_random_seed",
    "enable_eager_execution": "it is always on: leave it out",
    "disable_v2_behavior": _VERSION_1,
    "disable_eager_execution": _VERSION_1,
    "assign": "use variable.assign",
    "assign_add": "use variable.assign_add",
    "log": "use tf.math.log",
    "div": "use tf.math.divide",
    "to_float": 'use tf.cast(x, "float32")',
    "to_int32": 'use tf.cast(x, "int32")',
    "to_int64": 'use tf.cast(x, "int64")',
    "random_normal": "use tf.random.normal",
    "random_uniform": "use tf.random.uniform",
    "truncated_normal": "use tf.random.truncated_normal",
    "read_file": "use tf.io.read_file",
    "parse_single_example": "use tf.io.parse_single_example",
    "image.resize_images": "use tf.image.resize",
    "layers": "use keras.layers",
    "app": "call main() yourself, and read options with argparse",
    "flags": "read options with argparse",
    "logging": "use Python's logging",
    "gfile": "use tf.io.gfile",
    "python_io": "use tf.io",
    "contrib": "use what keras and tensorflow have in its place",
    "estimator": "train with keras.Model.fit",
    "losses.sparse_softmax_cross_entropy": "use keras.losses.SparseCategoricalCrossentropy(from_logits=True)",
    "losses.softmax_cross_entropy": "use keras.losses.CategoricalCrossentropy(from_logits=True)",
    "losses.mean_squared_error": "use keras.losses.MeanSquaredError",
    "metrics.accuracy": "use keras.metrics.Accuracy",
    "nn.softmax_cross_entropy_with_logits_v2": "use tf.nn.softmax_cross_entropy_with_logits",
    "nn.rnn_cell": "use keras.layers.LSTM or GRU",
    "summary.FileWriter": "use tf.summary.create_file_writer, or keras.callbacks.TensorBoard",
    "summary.merge_all": "use keras.callbacks.TensorBoard",
    "train.AdamOptimizer": _KERAS_OPTIMIZER,
    "train.AdagradOptimizer": _KERAS_OPTIMIZER,
    "train.GradientDescentOptimizer": _KERAS_OPTIMIZER,
    "train.MomentumOptimizer": _KERAS_OPTIMIZER,
    "train.RMSPropOptimizer": _KERAS_OPTIMIZER,
    "train.MonitoredTrainingSession": _HOOKS,
    "train.SessionRunHook": _HOOKS,
    "train.LoggingTensorHook": _HOOKS,
    "train.StopAtStepHook": _HOOKS,
    "train.CheckpointSaverHook": _HOOKS,
    "train.Scaffold": _HOOKS,
    "train.Saver": "use model.save, or tf.train.Checkpoint",
    "train.get_or_create_global_step": "use optimizer.iterations",
    "train.get_global_step": "use optimizer.iterations",
    "train.create_global_step": "use optimizer.iterations",
    "train.exponential_decay": "use keras.optimizers.schedules.ExponentialDecay",
}

#: Methods of Keras models.
MODEL_METHODS = {
    "fit_generator": "use fit, which takes generators (and no workers)",
    "evaluate_generator": "use evaluate, which takes generators",
    "predict_generator": "use predict, which takes generators",
    "predict_classes": "use predict and numpy.argmax",
    "predict_proba": "use predict",
    "to_yaml": "use to_json",
}
#: Attributes of Keras optimizers; `variables` is still there, but is a list.
OPTIMIZER_ATTRIBUTES = {
    "lr": "write learning_rate",
    "weights": "write variables",
    "get_weights": "write [variable.numpy() for variable in optimizer.variables]",
    "minimize": "use tape.gradient and apply_gradients",
    "get_updates": "use apply_gradients",
    "get_gradients": "use tape.gradient",
    "_decayed_lr": "use learning_rate",
    "_create_all_weights": "use build(model.trainable_variables)",
    "get_scaled_loss": "use scale_loss",
    "get_unscaled_gradients": "leave it out: apply_gradients of the LossScaleOptimizer does it",
}
_COMPILE = "leave it out"
_FIT = "leave it out, or set it on the keras.utils.PyDataset"
#: Arguments that calls no longer take; the methods are those of a model.
ARGUMENTS = {
    "compile": {
        "experimental_run_tf_function": _COMPILE,
        "experimental_steps_per_execution": "write steps_per_execution",
        "sample_weight_mode": _COMPILE,
        "target_tensors": _COMPILE,
        "distribute": _COMPILE,
    },
    "fit": {"workers": _FIT, "use_multiprocessing": _FIT, "max_queue_size": _FIT, "nb_epoch": "write epochs"},
    "evaluate": {"workers": _FIT, "use_multiprocessing": _FIT, "max_queue_size": _FIT},
    "predict": {"workers": _FIT, "use_multiprocessing": _FIT, "max_queue_size": _FIT},
    "train_on_batch": {"reset_metrics": "call model.reset_metrics() before it"},
}
#: The same for classes, by their name in Keras.
CLASS_ARGUMENTS = {
    "keras.callbacks.ModelCheckpoint": {
        "period": 'write save_freq="epoch"',
        "load_weights_on_restart": "call model.load_weights before fit",
    },
    "keras.callbacks.TensorBoard": {"write_grads": "leave it out", "batch_size": "leave it out"},
    "keras.layers.BatchNormalization": {"fused": "leave it out"},
    "keras.Model": {"input": "write inputs", "output": "write outputs"},
}
#: What Lightning 2 no longer takes.
LIGHTNING = "Lightning 2 has no Horovod strategy: write the loop of PyTorch with hvd.DistributedOptimizer"
