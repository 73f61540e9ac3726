"""Programs that know nothing of pudica, run by test_automatic.py. Each prints what it computed."""

import subprocess
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=16, layers=3):
        super().__init__()
        self.words = nn.Embedding(50, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 4 * width, batch_first=True)
            for _ in range(layers))
        self.head = nn.Linear(width, 50)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(model, optimizer, lengths=(8, 12, 10, 14)):
    for length in lengths:
        words = torch.arange(4 * length).view(4, length) % 50
        model(words).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(sum(p.detach().double().abs().sum() for p in model.parameters())).hex()


def plain():
    model = Net()
    print(train(model, torch.optim.AdamW(model.parameters())))


def odd():
    """Raises what nobody expects of a layer, where training does not ask."""

    class Block(nn.TransformerEncoderLayer):
        def parameters(self, recurse=True):
            raise KeyError("they are elsewhere")

    model = Net()
    model.blocks = nn.ModuleList(Block(16, 2, 64, batch_first=True) for _ in range(3))
    print(train(model, torch.optim.AdamW(model.parameters())))


def two_models():
    models = [Net(), Net(32, 2)]
    optimizer = torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1)
    print([train(model, optimizer) for model in models])


def inner_is_called():
    """The outermost module is never called: those inside it are."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = Net(), Net(32, 2)

    both = Both()
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    print([train(model, optimizer) for model in (both.one, both.other)])


def own_attach():
    import pudica

    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(2, 4, dtype=torch.long))
    with pudica.attach(model, "1GiB") as handle:
        train(model, optimizer)
        print(handle.budget)


def subprocess_of_it():
    plain()
    code = "from automatic_programs import plain; plain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(done.stdout.strip(), repr(done.stderr))


def loader():
    from torch.utils.data import DataLoader

    data = [torch.arange(8) for _ in range(8)]
    for context in ("fork", "spawn"):
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())
        for batch in DataLoader(data, 4, num_workers=1, multiprocessing_context=context):
            model(batch).mean().backward()
            optimizer.step()


def compiled():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    model = torch.compile(model, backend="eager")
    print(train(model, optimizer, (8, 8)))


def no_layers():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def rank():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Net())
    train(model, torch.optim.AdamW(model.parameters()))
    dist.destroy_process_group()


def trainer(folder):
    import transformers

    model = transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32))

    def collate(rows):
        words = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return {"input_ids": words, "labels": words[:, 0] % 2}

    arguments = transformers.TrainingArguments(
        output_dir=folder, max_steps=3, per_device_train_batch_size=2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True)
    transformers.Trainer(
        model=model, args=arguments, data_collator=collate,
        train_dataset=[torch.arange(1, 5 + i) for i in range(8)]).train()


def lightning():
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, words, index):
            return self.net(words).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    trainer = pl.Trainer(max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    batches = [torch.zeros(2, n, dtype=torch.long) for n in (6, 9)]
    trainer.fit(Module(), torch.utils.data.DataLoader(batches, batch_size=None))


if __name__ == "__main__":
    torch.manual_seed(1)
    globals()[sys.argv[1]](*sys.argv[2:])
