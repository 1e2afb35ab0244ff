"""Measures a finished model: right, and with two wrong positions in decode.

The two faults, as a buggy decode loop would make them (t is the position given to a
token, P the length of the prompt; the prompt itself is always at 0 .. P-1):

  off-by-one      the token at index i gets t = i + 1
  reset-to-zero   every decoded token gets t = 0

Which tokens may look at which stays as it is, so one pass over the whole text with
these positions gives exactly the numbers that token-by-token decoding would give.
Everything is computed in float32.
"""
import sys

import torch
from torch.nn import functional as F

import austen
import bpe
import reverse
import store
import text

FAULTS = ["right", "off-by-one", "reset-to-zero"]


def positions(fault, prompt, length):
    t = torch.arange(length)
    if fault == "off-by-one":
        t[prompt:] += 1
    elif fault == "reset-to-zero":
        t[prompt:] = 0
    return t


@torch.no_grad()
def continue_text(net, prompt, count, fault, end=None, temperature=0.0, seed=1):
    """Appends count tokens, or fewer if the token end comes.

    Temperature 0 always takes the most likely token; above 0 the token is drawn, with
    the logits divided by the temperature first.
    """
    dice = torch.Generator().manual_seed(seed)
    ids = list(prompt)
    for _ in range(count):
        t = positions(fault, len(prompt), len(ids))
        logits = net(torch.tensor([ids]), t)[0, -1]
        if temperature == 0:
            ids.append(logits.argmax().item())
        else:
            chances = torch.softmax(logits / temperature, -1)
            ids.append(torch.multinomial(chances, 1, generator=dice).item())
        if ids[-1] == end:
            break
    return ids[len(prompt):]


@torch.no_grad()
def fault_loss(net, tokens, fault, prompt=16):
    """Mean loss over the tokens after the prompt, in windows of n_positions tokens.

    The last token of a window is only a target, so off-by-one still ends inside wpe.
    """
    window = net.wpe.weight.shape[0]
    rows = austen.windows(tokens, window)[:, :window]
    t = positions(fault, prompt, window - 1)
    total = 0.0
    for part in rows.split(64):
        logits = net(part[:, :-1], t)[:, prompt - 1:]
        total += F.cross_entropy(logits.flatten(0, 1), part[:, prompt:].flatten(),
                                 reduction="sum").item()
    return total / rows[:, prompt:].numel()


def evaluate_austen(folder):
    net, _ = store.load(folder)
    tokenizer = bpe.load(folder)
    validation = text.novels()[1]
    ids = tokenizer.encode(validation)
    tokens = torch.tensor(ids)
    rows = austen.windows(tokens, net.wpe.weight.shape[0])
    loss = austen.validation_loss(net, rows)
    # characters of the text that the scored tokens stand for
    size = len(validation.encode("utf-8")) / len(ids)
    print(f"validation loss {loss:.4f} per token over {rows[:, 1:].numel()} tokens, "
          f"{loss / 0.6931472 / size:.3f} bits per byte")
    for fault in FAULTS:
        print(f"{fault}: loss {fault_loss(net, tokens, fault):.4f} after a prompt of 16")
    for prompt in ["It is a truth universally acknowledged, that",
                   "Elizabeth was", "\"My dear Emma,\" said"]:
        for fault in FAULTS:
            for heat in (0, 0.8):
                out = continue_text(net, tokenizer.encode(prompt), 70, fault,
                                    temperature=heat)
                print(f"[{fault}, temperature {heat}] {prompt}|"
                      f"{tokenizer.decode(out)}\n")


@torch.no_grad()
def answers(net, words, fault):
    """Greedy answers (token ids with the newline) to words of one length."""
    rows = torch.from_numpy(reverse.as_rows(words)[0])[:, :len(words[0])]
    mark = torch.full((len(words), 1), reverse.MARK)
    rows = torch.cat([rows, mark], 1)
    prompt = rows.shape[1]
    limit = net.wpe.weight.shape[0] - 1  # so that off-by-one stays inside wpe
    while rows.shape[1] < limit:
        t = positions(fault, prompt, rows.shape[1])
        rows = torch.cat([rows, net(rows, t)[:, -1].argmax(-1)[:, None]], 1)
    found = []
    for row in rows[:, prompt:].tolist():
        stop = row.index(reverse.END) + 1 if reverse.END in row else len(row)
        found.append(row[:stop])
    return found


def evaluate_reverse(folder):
    net, _ = store.load(folder)
    tokenizer = bpe.load(folder)
    words = reverse.held_out(folder)
    groups = {"English words": words[:1000], "random letters": words[1000:]}
    for name, group in groups.items():
        repeats = sum(len(set(w)) < len(w) for w in group)
        print(f"{name}: {len(group)}, {repeats} of them with a letter used twice")
        for fault in FAULTS:
            right = 0
            wrong = []
            for n in sorted({len(w) for w in group}):
                same = [w for w in group if len(w) == n]
                for word, ids in zip(same, answers(net, same, fault)):
                    said = tokenizer.decode(ids)
                    right += said == word[::-1] + "\n"
                    if said != word[::-1] + "\n":
                        wrong.append((word, said))
            print(f"  {fault}: {right} of {len(group)} right; wrong e.g. {wrong[:4]}")
    for word in ["position", "cache", "letter", "attention"]:
        for fault in FAULTS:
            prompt = tokenizer.encode(word + ">")
            out = continue_text(net, prompt, 31 - len(prompt), fault, reverse.END)
            print(f"[{fault}] {word}> {tokenizer.decode(out)!r}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("austen", "reverse"):
        sys.exit("usage: evaluate.py austen|reverse FOLDER")
    torch.set_num_threads(1)
    (evaluate_austen if sys.argv[1] == "austen" else evaluate_reverse)(sys.argv[2])
