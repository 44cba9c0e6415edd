"""The job files of Batch AI's recipes as data: their structure, with our own small scripts in place of the originals.

Source: microsoftarchive/BatchAI, recipes, February 2019.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"
PLACE = "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net"
MODEL = {"id": "MODEL", "pathPrefix": f"{ROOT}/logs"}
MPI = "apt update; apt install mpi-default-dev mpi-default-bin -y"
OLD = {"stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external"}


@frozen
class Recipe:
    """A job file, the script of ours that stands at the place of its own, and how it ends.

    Attributes:
        job: the job's properties.
        script: the file in ``scripts``, or "".
        end: ``succeeded``, or a part of the error by which it is known what is missing.
        quick: whether the normal suite runs it.
    """

    job: dict[str, Any]
    script: str = ""
    end: str = "succeeded"
    quick: bool = False


def job(block: str, path: str, args: str = "", *, nodes: int = 2, blob: bool = False, **more: Any) -> dict[str, Any]:
    """Returns a job of the recipes' usual form: the shares ``logs`` and ``scripts``, the container ``data``."""
    own = more.pop("settings", {})
    settings = {"pythonScriptFilePath": f"{ROOT}/scripts/{path}", **own}
    if args:
        settings["commandLineArgs"] = args
    shares = [{"azureFileUrl": f"{PLACE}/{name}", "relativeMountPath": name} for name in ("logs", "scripts")]
    volumes: dict[str, Any] = {"azureFileShares": shares}
    if blob:
        account = "<AZURE_BATCHAI_STORAGE_ACCOUNT>"
        volumes["azureBlobFileSystems"] = [
            {"accountName": account, "containerName": "data", "relativeMountPath": "data"}
        ]
    image = {"imageSourceRegistry": {"image": more.pop("image", "an/image")}}
    fixed = {"stdOutErrPathPrefix": f"{ROOT}/logs", "mountVolumes": volumes, "containerSettings": image}
    return {"nodeCount": nodes, block: settings, **fixed, **more}


def brainscript(config: str, args: str, nodes: int) -> dict[str, Any]:
    """Returns a job of the schema of 2017: what it needs is mounted on the cluster."""
    outside = "$AZ_BATCHAI_MOUNT_ROOT/external"
    inputs = [
        {"id": "DATASET", "path": f"{outside}/mnist_database"},
        {"id": "CONFIG", "path": f"{outside}/cntk_samples"},
    ]
    settings = {"configFilePath": f"$AZ_BATCHAI_INPUT_CONFIG/{config}", "commandLineArgs": args}
    output = {"id": "MODEL", "pathPrefix": outside, "pathSuffix": "Models"}
    image = {"imageSourceRegistry": {"image": "microsoft/cntk:2.1-gpu-python3.5-cuda8.0-cudnn6.0"}}
    more = {"inputDirectories": inputs, "outputDirectories": [output], "containerSettings": image}
    return {"nodeCount": nodes, "cntkSettings": settings, **OLD, **more}


def prepared(command: str) -> dict[str, Any]:
    """Returns a job's preparation."""
    return {"jobPreparation": {"commandLine": command}}


_HOSTS = "--ps_hosts=$AZ_BATCHAI_PS_HOSTS --worker_hosts=$AZ_BATCHAI_WORKER_HOSTS"
_DIRS = "--train_steps 10000 --checkpoint_dir=$AZ_BATCHAI_OUTPUT_MODEL --log_dir=$AZ_BATCHAI_OUTPUT_TENSORBOARD"
_TASK = f"{_HOSTS} {_DIRS} --task_index=$AZ_BATCHAI_TASK_INDEX --data_dir=$AZ_BATCHAI_INPUT_DATASET"
_WORKER = f"--job_name=worker --num_gpus=1 {_TASK}"
_SERVER = f"--job_name=ps --num_gpus=0 {_HOSTS} --task_index=$AZ_BATCHAI_TASK_INDEX --data_dir={ROOT}/data/mnist_data"
_REPLICA = {
    "parameterServerCount": 1,
    "workerCount": 2,
    "masterCommandLineArgs": _WORKER,
    "workerCommandLineArgs": _WORKER,
    "parameterServerCommandLineArgs": _SERVER,
}
_CIFAR = f"bash {ROOT}/scripts/cntk/jobprep_cntk_distributed"
_CNN = "benchmarks/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
_BENCH = "--model resnet101 --batch_size 64 --variable_update horovod"
_SCORE = (
    "python -u $AZ_BATCHAI_INPUT_SCRIPT/batch_image_label.py --dataset_path $AZ_BATCHAI_INPUT_IMAGES "
    "--output_dir $AZ_BATCHAI_OUTPUT_LABEL --batch_size 64"
)

RECIPES = {
    "Batch-Scoring": Recipe(
        {
            **{k: v for k, v in job("customMpiSettings", "x", blob=True).items() if k != "customMpiSettings"},
            "customMpiSettings": {"commandLine": _SCORE},
            **prepared(MPI),
            "outputDirectories": [{"id": "LABEL", "pathPrefix": f"{ROOT}/logs"}],
            "inputDirectories": [
                {"id": "SCRIPT", "path": f"{ROOT}/scripts/classification_samples"},
                {"id": "IMAGES", "path": f"{ROOT}/data/unlabeled_images"},
            ],
        },
        "score.py",
    ),
    "CNTK-GPU-BrainScript": Recipe(
        brainscript("ConvNet_MNIST.cntk", "rootDir=. dataDir=$AZ_BATCHAI_INPUT_DATASET", 1),
        "net.cntk",
        "cntk: command not found",
    ),
    "CNTK-GPU-BrainScript-Distributed": Recipe(
        brainscript("DistributedConvNet_MNIST.cntk", "rootDir=. parallelTrain=true", 2),
        "net.cntk",
        "cntk: not found",
    ),
    "CNTK-GPU-Python": Recipe(
        job(
            "cntkSettings",
            "cntk/ConvNet_MNIST.py",
            f"{ROOT}/data/mnist_cntk $AZ_BATCHAI_OUTPUT_MODEL",
            nodes=1,
            blob=True,
        )
        | {"outputDirectories": [MODEL]},
        "train_torch.py",
    ),
    "CNTK-GPU-Python-Distributed": Recipe(
        job(
            "cntkSettings",
            "cntk/ConvNet_CIFAR10.py",
            "--datadir $AZ_BATCHAI_JOB_TEMP -outputdir $AZ_BATCHAI_OUTPUT_MODEL -n 5",
        )
        | {"outputDirectories": [MODEL], **prepared(f"{_CIFAR}.sh")},
        "train_torch.py",
    ),
    "CNTK-GPU-Python-Distributed-Infiniband": Recipe(
        job(
            "cntkSettings",
            "cntk/TrainResNet_CIFAR10_Distributed.py",
            "--datadir $AZ_BATCHAI_JOB_TEMP -outputdir $AZ_BATCHAI_OUTPUT_MODEL -n resnet110 -e 5",
            settings={"processCount": 8},
        )
        | {"outputDirectories": [MODEL], **prepared(f"{_CIFAR}_ib.sh")},
        "train_torch.py",
    ),
    "Caffe2-GPU-Distributed": Recipe(
        job(
            "caffe2Settings",
            "caffe2/resnet50_trainer.py",
            f"--num_shards 2 --shard_id $AZ_BATCHAI_TASK_INDEX --train_data {ROOT}/data/mnist_data/mnist_train_lmdb "
            "--file_store_path $AZ_BATCHAI_SHARED_JOB_TEMP",
            blob=True,
        ),
        "train_torch.py",
    ),
    "Chainer-GPU-Distributed": Recipe(
        job("chainerSettings", "chainer/train_mnist.py", "-g -o $AZ_BATCHAI_OUTPUT_MODEL")
        | {"outputDirectories": [MODEL]},
        "train_torch.py",
    ),
    "Chainer-GPU-Distributed-Infiniband": Recipe(
        job(
            "chainerSettings",
            "chainer/train_mnist.py",
            "-g --communicator non_cuda_aware -o $AZ_BATCHAI_OUTPUT_MODEL",
            settings={"processCount": 8},
        )
        | {"outputDirectories": [MODEL], **prepared(f"bash {ROOT}/scripts/chainer/jobprep.sh")},
        "train_torch.py",
    ),
    "Horovod-Infiniband-Benchmark": Recipe(
        job("horovodSettings", "x", _BENCH, settings={"processCount": 8})
        | {
            "horovodSettings": {
                "pythonScriptFilePath": f"$AZ_BATCHAI_JOB_TEMP/{_CNN}",
                "commandLineArgs": _BENCH,
                "processCount": 8,
            },
            **prepared(f"bash {ROOT}/scripts/horovod/jobprep_benchmark.sh"),
        },
        end="does not exist",
        quick=True,
    ),
    "Horovod-PyTorch": Recipe(
        job("horovodSettings", "horovod/pytorch_mnist.py")
        | {
            "outputDirectories": [
                {"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external", "pathSuffix": "Models"}
            ],
            **prepared(f"{MPI}; pip install horovod"),
        },
        "train_horovod_torch.py",
    ),
    "Horovod-Tensorflow": Recipe(
        job("horovodSettings", "horovod/tensorflow_mnist.py") | prepared(f"{MPI}; pip install horovod"),
        "train_horovod_tensorflow.py",
    ),
    "Keras-GPU-CNTK": Recipe(job("cntkSettings", "keras/mnist_cnn.py", nodes=1), "train_keras.py"),
    "Keras-GPU-TensorFlow": Recipe(
        job("tensorFlowSettings", "keras/mnist_cnn.py", nodes=1) | prepared("pip install keras"), "train_keras.py"
    ),
    "PyTorch-GPU-Distributed-Gloo": Recipe(
        job(
            "pyTorchSettings",
            "pytorch/mnist_trainer.py",
            "--epochs 10 --world-size 2 --dist-backend $AZ_BATCHAI_PYTORCH_BACKEND "
            "--dist-url $AZ_BATCHAI_PYTORCH_INIT_METHOD --rank $AZ_BATCHAI_TASK_INDEX",
            settings={"communicationBackend": "gloo"},
        )
        | prepared(f"{MPI}; pip install horovod"),
        "train_torch.py",
        quick=True,
    ),
    "TensorFlow-GPU": Recipe(job("tensorFlowSettings", "tensorflow/convolutional.py", nodes=1), "train_keras.py"),
    "TensorFlow-GPU-Distributed": Recipe(
        job("tensorFlowSettings", "tensorflow/mnist_replica.py", settings=_REPLICA, blob=True)
        | {
            "inputDirectories": [{"id": "DATASET", "path": f"{ROOT}/data/mnist_data"}],
            "outputDirectories": [MODEL, {"id": "TENSORBOARD", "pathPrefix": f"{ROOT}/logs"}],
        },
        "train_replica.py",
    ),
}
"""The 17 job files; the other four recipes are notebooks: Caffe-GPU, Random-Search, HyperBand, Create-Job-Per-File."""
