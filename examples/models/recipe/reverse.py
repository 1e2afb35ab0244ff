"""Trains the small model that spells words backwards: position> gives noitisop."""
import argparse
import time

import numpy
import torch
from torch.nn import functional as F

import bpe
import model as network
import optim
import store

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MARK, END = 26, 27  # the ids of ">" and newline
SHORTEST, LONGEST = 3, 14
SEED = 1


def tokenizer():
    """a..z, ">" and newline (Ċ in byte-level notation); no merges."""
    symbols = [*LETTERS, ">", bpe.BYTE_TO_CHAR[ord("\n")]]
    return bpe.Tokenizer({s: i for i, s in enumerate(symbols)}, [])


def key(words, lengths):
    """One 64-bit number per word, to look words up in the held-out list quickly."""
    inside = numpy.arange(words.shape[1]) < lengths[:, None]
    digits = numpy.where(inside, words + 1, 0).astype(numpy.uint64)
    total = numpy.zeros(len(words), dtype=numpy.uint64)
    for column in digits.T:
        total = total * numpy.uint64(0x9E3779B97F4A7C15) + column
    return total


def as_rows(words):
    lengths = numpy.array([len(w) for w in words])
    rows = numpy.zeros((len(words), LONGEST), dtype=numpy.int64)
    for row, word in zip(rows, words):
        row[:len(word)] = [LETTERS.index(c) for c in word]
    return rows, lengths


def held_out(folder):
    """The words of heldout.txt: they are only for evaluation."""
    with open(f"{folder}/heldout.txt", encoding="ascii") as f:
        return f.read().split()


def make_words(rng, count, longest):
    """Random letter strings, and no words of any language.

    Half of them use all letters evenly.  The other half draw from two to six letters
    only: full of repeats, so that a model that finds its place by looking for "the
    letter before this one" gets them wrong and has to use positions.
    """
    lengths = rng.integers(SHORTEST, longest + 1, count)
    # long words are harder: three in ten are drawn twice, the longer one counts
    again = rng.random(count) < 0.3
    second = rng.integers(SHORTEST, longest + 1, again.sum())
    lengths[again] = numpy.maximum(lengths[again], second)
    words = rng.integers(0, 26, (count, LONGEST))
    few = rng.random(count) < 0.5
    size = rng.integers(2, 7, count)
    chosen = rng.integers(0, 26, (count, 6))
    pick = (rng.random((count, LONGEST)) * size[:, None]).astype(numpy.int64)
    words[few] = numpy.take_along_axis(chosen, pick, axis=1)[few]
    return words, lengths


def make_batch(words, lengths):
    """Token rows "word > drow newline", and which tokens are part of the answer."""
    width = 2 * lengths.max() + 2
    rows = numpy.full((len(words), width), END, dtype=numpy.int64)
    column = numpy.arange(width)[None, :]
    n = lengths[:, None]
    back = 2 * n - column  # the answer at n+1, n+2, ... is letter n-1, n-2, ...
    source = numpy.clip(numpy.where(column < n, column, back), 0, LONGEST - 1)
    letters = numpy.take_along_axis(words, source, axis=1)
    rows = numpy.where((column < n) | ((column > n) & (column <= 2 * n)), letters, rows)
    rows[numpy.arange(len(words)), lengths] = MARK
    answer = (column > n) & (column <= 2 * n + 1)
    return torch.from_numpy(rows), torch.from_numpy(answer)


@torch.no_grad()
def share_right(net, words):
    """Share of words whose whole answer is the most likely one, letter by letter."""
    rows, answer = make_batch(*as_rows(words))
    best = net(rows[:, :-1]).argmax(-1)
    return ((best == rows[:, 1:]) | ~answer[:, 1:]).all(1).float().mean().item()


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--out", default="../reverse", help="folder of the model")
    args.add_argument("--steps", type=int, default=5000)
    args.add_argument("--batch", type=int, default=256)
    args.add_argument("--lr-matrix", type=float, default=0.02)
    args.add_argument("--lr-rest", type=float, default=0.003)
    args.add_argument("--decay", type=float, default=0.5)
    a = args.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = numpy.random.default_rng(SEED)
    fields = store.config(vocab_size=28, n_embd=48, n_head=4, n_layer=2,
                          n_positions=32, bos_token_id=None, eos_token_id=END)
    net = network.GPT2(fields)
    # twice GPT-2's start: everything here hangs on the position table
    torch.nn.init.normal_(net.wpe.weight, std=0.02)
    print(sum(p.numel() for p in net.parameters()), "parameters")
    tokenizer().save(a.out)
    unseen = held_out(a.out)
    forbidden = key(*as_rows(unseen))
    # The strong weight decay matters: without it the attention scores grow until
    # softmax is all 0 and 1, and what is wrong then never gets a gradient again.
    opt = optim.Optimizer(net, a.lr_matrix, a.lr_rest, a.decay)

    start = time.time()
    average = 0.0
    for step in range(a.steps):
        # curriculum: short words first, all lengths after a quarter of the steps
        longest = min(LONGEST, 5 + int(step / (0.25 * a.steps) * (LONGEST - 4)))
        words, lengths = make_words(rng, a.batch, longest)
        fresh = ~numpy.isin(key(words, lengths), forbidden)
        rows, answer = make_batch(words[fresh], lengths[fresh])
        logits = net(rows[:, :-1])
        chosen = answer[:, 1:]
        loss = F.cross_entropy(logits[chosen], rows[:, 1:][chosen])
        loss.backward()
        opt.step(optim.schedule(step, a.steps, warmup=100))
        average = 0.98 * average + 0.02 * loss.item()
        if (step + 1) % 200 == 0:
            print(f"step {step + 1} longest {longest} loss {average:.4f} "
                  f"right {share_right(net, unseen):.3f} "
                  f"{time.time() - start:.0f} s", flush=True)
        if (step + 1) % 1000 == 0:
            store.save(a.out, net, fields)
    store.save(a.out, net, fields)


if __name__ == "__main__":
    main()
