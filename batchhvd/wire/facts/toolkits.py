"""The toolkits of Batch AI: the settings block that a job names, and the ``toolType`` that the service answers.

Source: the description of 2018-05-01. Its enum has no word for PyTorch; its text does.
"""

from __future__ import annotations

TOOL_TYPES = {
    "cntkSettings": "cntk",
    "pyTorchSettings": "pytorch",
    "tensorFlowSettings": "tensorflow",
    "caffeSettings": "caffe",
    "caffe2Settings": "caffe2",
    "chainerSettings": "chainer",
    "customToolkitSettings": "custom",
    "customMpiSettings": "custommpi",
    "horovodSettings": "horovod",
}
