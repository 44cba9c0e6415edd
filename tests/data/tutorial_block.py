import batchhvd
from batchhvd import Horovod, JobSpec

session = batchhvd.local()                      # starts the local service, or finds the one that runs; connect(endpoint, credential) for another
group = session.create_group("batchai.horovod", location="eastus")
workspace = group.create_workspace("batchaidev")
experiment = workspace.create_experiment("cifar")
cluster = workspace.create_cluster("nc6cluster", vm_size="Standard_NC6", nodes=4)       # returns while resizing

share = group.create_storage("mystorageaccount").create_share("myshare")
share.create_directory("cifar")
share.upload("cifar_cnn_distributed.py", to="cifar")

mount = share.mount("myshare")
spec = JobSpec(
    nodes=4,
    task=Horovod(script=mount / "cifar/cifar_cnn_distributed.py", args=f"--dir={mount / 'cifar'}"),
    mounts=[mount],
    logs=mount / "cifar",
)
cluster.wait(timeout=900)
job = experiment.create_job("cifar_distributed", spec, cluster=cluster)
job.wait("running", timeout=600)
print(job.state, cluster.refresh().nodes)
for file in job.files():
    print(file.name, file.size, file.modified)
for text in job.stream("stdout.txt"):           # ends when the job has ended and every byte was read
    print(text, end="")
job.wait(timeout=7200)                          # raises JobFailed with the first failing rank and its last lines
share.download("cifar/saved_models/keras_cifar10_trained_model.h5", to=".")
cluster.resize(0)
group.delete()
