"""Trains the text model on Jane Austen's six novels."""
import argparse
import math
import os
import time

import numpy
import torch
from torch.nn import functional as F

import bpe
import model as network
import optim
import store
import text

SEED = 1
VOCAB = 1024
WINDOW = 128  # n_positions


def windows(tokens, window):
    """Validation rows: window inputs each, plus the last target; one after the other."""
    count = (len(tokens) - 1) // window
    return torch.stack([tokens[i * window:i * window + window + 1]
                        for i in range(count)])


@torch.no_grad()
def validation_loss(net, rows):
    """Mean loss per token over all windows (each starts with empty context)."""
    net.eval()
    total = 0.0
    for part in rows.split(64):
        logits = net(part[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(),
                                 reduction="sum").item()
    net.train()
    return total / rows[:, 1:].numel()


def epochs(tokens, window, batch, rng):
    """Training batches without end.

    Each epoch cuts the text at a new random offset and shuffles the pieces, so that
    a token stands at another position with another context each time.
    """
    while True:
        offset = rng.integers(window)
        starts = numpy.arange(offset, len(tokens) - window - 1, window)
        rng.shuffle(starts)
        for i in range(0, len(starts) - batch + 1, batch):
            yield torch.stack([tokens[s:s + window + 1] for s in starts[i:i + batch]])


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--out", default="../austen", help="folder of the model")
    args.add_argument("--steps", type=int, default=7500)
    args.add_argument("--batch", type=int, default=24)
    args.add_argument("--dropout", type=float, default=0.05)
    args.add_argument("--lr-matrix", type=float, default=0.02)
    args.add_argument("--lr-rest", type=float, default=0.004)
    args.add_argument("--decay", type=float, default=0.1)
    args.add_argument("--float32", action="store_true",
                      help="no bfloat16 products (faster on processors without them)")
    a = args.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = numpy.random.default_rng(SEED)
    network.FAST_PRODUCTS = not a.float32

    training, validation = text.novels()
    tokenizer = bpe.from_text(training, VOCAB)
    os.makedirs(a.out, exist_ok=True)
    tokenizer.save(a.out)
    tokens = torch.tensor(tokenizer.encode(training))
    valid = windows(torch.tensor(tokenizer.encode(validation)), WINDOW)
    print(len(tokens), "training tokens,", valid[:, 1:].numel(), "validation tokens")

    fields = store.config(vocab_size=VOCAB, n_embd=128, n_head=4, n_layer=4,
                          n_positions=WINDOW, bos_token_id=None, eos_token_id=None)
    net = network.GPT2(fields, a.dropout)
    print(sum(p.numel() for p in net.parameters()), "parameters")
    opt = optim.Optimizer(net, a.lr_matrix, a.lr_rest, a.decay)
    batches = epochs(tokens, WINDOW, a.batch, rng)

    start = time.time()
    average = math.log(VOCAB)
    for step in range(a.steps):
        rows = next(batches)
        logits = net(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        opt.step(optim.schedule(step, a.steps, warmup=100))
        average = 0.98 * average + 0.02 * loss.item()
        if (step + 1) % 250 == 0 or step + 1 == a.steps:
            print(f"step {step + 1} training loss {average:.4f} validation loss "
                  f"{validation_loss(net, valid):.4f} {time.time() - start:.0f} s",
                  flush=True)
            store.save(a.out, net, fields)


if __name__ == "__main__":
    main()
