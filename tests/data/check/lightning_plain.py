"""Lightning without Horovod: in a job each rank trains by itself."""  # finding: no-horovod
import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@rank_zero_only
def report(trainer):
    print(trainer.callback_metrics)


loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.rand(64, 8), torch.rand(64, 1)), batch_size=16
)
trainer = L.Trainer(max_epochs=1, callbacks=[ModelCheckpoint(monitor=None)])
trainer.fit(Regression(), loader)
report(trainer)
