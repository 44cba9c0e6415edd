"""Lightning with its Horovod strategy, which Lightning 2 has removed."""
import pytorch_lightning as pl
import torch


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


dataset = torch.utils.data.TensorDataset(torch.rand(64, 8), torch.rand(64, 1))
loader = torch.utils.data.DataLoader(dataset, batch_size=16)
trainer = pl.Trainer(max_epochs=1, strategy="horovod", accelerator="auto")  # finding: removed-api
trainer.fit(Regression(), loader)
