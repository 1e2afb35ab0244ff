"""random_model.py: writes a small GPT-2 with random weights as a Hugging Face directory, the same for the same seed.

Such a model says nothing sensible, but every number in it matters: no bias is 0, no gain is 1, attention is neither
uniform nor stuck on one row. A bias that was forgotten or two dimensions that were swapped shows at once.
Usage: random_model.py DIR --seed S [options, see --help]
"""
import argparse
import json
import os
import struct

import numpy as np

# ---- storing numbers ----------------------------------------------------------------------------------------------


def to_bf16(x):
    """float32 array to the bits of bfloat16, rounded to nearest, ties to even (no NaN comes in here)."""
    bits = x.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def encode(x, dtype):
    """The bytes of array x stored as `dtype` of safetensors."""
    if dtype == "BF16":
        return to_bf16(x).tobytes()
    return x.astype({"F32": "<f4", "F16": "<f2", "BOOL": "u1"}[dtype]).tobytes()


def write_safetensors(path, tensors):
    """`tensors`: {name: (array, dtype)}. Written one after another with no gap, so a tensor may begin at any byte."""
    header, chunks, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, (array, dtype) in tensors.items():
        raw = encode(array, dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(raw)]}
        chunks.append(raw)
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


# ---- weights ------------------------------------------------------------------------------------------------------


def random_weights(o):
    """{name: float64 array} with names as in a file without `transformer.` and matrices [in][out]."""
    rng = np.random.default_rng(o.seed)
    E, I = o.n_head * o.head_dim, o.n_inner or 4 * o.n_head * o.head_dim
    w = {}

    def normal(name, shape, deviation):
        w[name] = rng.standard_normal(shape) * deviation

    def norm(name):
        w[name + ".weight"] = rng.uniform(0.8, 1.2, E)
        normal(name + ".bias", E, 0.1)

    def affine(name, n_in, n_out):
        normal(name + ".weight", (n_in, n_out), 1 / np.sqrt(n_in))
        normal(name + ".bias", n_out, 0.1)

    embedding = min(max(3 / np.sqrt(E), 0.1), 0.5)  # keeps logits at a few units whatever E is
    normal("wte.weight", (o.n_vocab, E), embedding)
    normal("wpe.weight", (o.n_ctx, E), 0.5 * embedding)
    for layer in range(o.n_layer):
        h = f"h.{layer}."
        norm(h + "ln_1")
        affine(h + "attn.c_attn", E, 3 * E)
        # After LayerNorm q and k would be about 1 each and scores too: attention too even to show much.
        w[h + "attn.c_attn.weight"][:, :2 * E] *= 1.5
        affine(h + "attn.c_proj", E, E)
        norm(h + "ln_2")
        affine(h + "mlp.c_fc", E, I)
        affine(h + "mlp.c_proj", I, E)
    norm("ln_f")
    if o.untied:
        normal("lm_head.weight", (o.n_vocab, E), embedding)
    return w


def to_file_form(o, weights):
    """{name: (array, dtype)} as the options want it in the file: prefix, layout, mask buffers."""
    tensors = {}
    for name, array in weights.items():
        if o.linear and name.startswith("h.") and array.ndim == 2:
            array = np.ascontiguousarray(array.T)
        stored = name if name == "lm_head.weight" or not o.prefix else "transformer." + name
        if o.attn_bias and name.endswith("attn.c_attn.weight"):
            # Both forms found in real files: the mask as numbers, and as one byte each.
            attn, layer = stored[:-len("c_attn.weight")], int(name.split(".")[1])
            mask = np.tril(np.ones((1, 1, o.n_ctx, o.n_ctx)))
            tensors[attn + "bias"] = (mask, "BOOL" if layer % 2 else "F32")
            tensors[attn + "masked_bias"] = (np.array(-1e4), "F32")
        tensors[stored] = (array, o.dtype)
    return tensors


def write_weights(directory, tensors, shards):
    if shards == 1:
        write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
        return
    names, weight_map = list(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        write_safetensors(os.path.join(directory, file), {name: tensors[name] for name in part})
        weight_map.update({name: file for name in part})
    total = sum(len(encode(*tensor)) for tensor in tensors.values())
    with open(os.path.join(directory, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out)


# ---- tokenizer ----------------------------------------------------------------------------------------------------


def byte_symbols():
    """GPT-2 shows every byte as one visible character: itself where it is visible, else the next free one from
    U+0100 on. {byte: character}, in GPT-2's order of ids."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    symbols = {byte: chr(byte) for byte in visible}
    symbols.update({byte: chr(0x100 + i) for i, byte in enumerate(hidden)})
    return symbols


def make_tokenizer(n_vocab):
    """(vocab {symbol: id}, merges [(left, right)]): the bytes, then merged pairs until n_vocab ids are used up or the
    alphabet has no more pairs. Below 256 ids, the letters, blank and newline come first."""
    symbols = byte_symbols()
    order = list(symbols)
    if n_vocab < 256:
        common = b"abcdefghijklmnopqrstuvwxyz \n.,"
        order = [*common, *(byte for byte in order if byte not in common)]
    vocab = {symbols[byte]: i for i, byte in enumerate(order[:n_vocab])}
    blank, letters = symbols[0x20], "etaoinshrdlucmfwypvbgkqjxz"
    candidates = [(blank, "t"), ("h", "e"), (blank, "a"), ("i", "n"), (blank + "t", "he"), ("e", "r"), ("o", "n")]
    candidates += [(a, b) for a in letters for b in letters]
    merges = []
    for left, right in candidates:
        if len(vocab) < n_vocab and left + right not in vocab:
            vocab[left + right] = len(vocab)
            merges.append((left, right))
    return vocab, merges


def write_tokenizer(directory, n_vocab):
    vocab, merges = make_tokenizer(n_vocab)
    with open(os.path.join(directory, "vocab.json"), "w", encoding="utf-8") as out:
        json.dump(vocab, out)
    with open(os.path.join(directory, "merges.txt"), "w", encoding="utf-8") as out:
        out.write("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))


# ---- the directory ------------------------------------------------------------------------------------------------


def make_config(o):
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
        "torch_dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[o.dtype],
        "n_layer": o.n_layer, "n_head": o.n_head, "n_embd": o.n_head * o.head_dim, "n_inner": o.n_inner,
        "n_positions": o.n_ctx, "n_ctx": o.n_ctx, "vocab_size": o.n_vocab,
        "activation_function": o.activation, "layer_norm_epsilon": o.eps,
        "scale_attn_weights": not o.no_scale, "scale_attn_by_inverse_layer_idx": o.inverse_layer_idx,
        "tie_word_embeddings": not o.untied,
    }


def write_model(directory, o):
    """Writes the model that the parsed options `o` describe; replaces what an earlier call left in `directory`."""
    os.makedirs(directory, exist_ok=True)
    for name in os.listdir(directory):
        if ".safetensors" in name:
            os.remove(os.path.join(directory, name))
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as out:
        json.dump(make_config(o), out, indent=2)
    write_weights(directory, to_file_form(o, random_weights(o)), o.shards)
    write_tokenizer(directory, o.n_vocab)


def make_parser():
    p = argparse.ArgumentParser(description="Writes a random GPT-2 as a Hugging Face directory.")
    p.add_argument("directory", metavar="DIR")
    p.add_argument("--seed", type=int, required=True)
    for name, default in (("layer", 2), ("head", 2), ("ctx", 64), ("vocab", 300)):
        p.add_argument(f"--n-{name}", type=int, default=default)
    p.add_argument("--head-dim", type=int, default=16)
    p.add_argument("--n-inner", type=int, help="default: null in config.json, which means 4·n_embd")
    p.add_argument("--activation", default="gelu_new", choices=["gelu_new", "gelu", "relu", "gelu_pytorch_tanh"])
    p.add_argument("--eps", type=float, default=1e-5, help="layer_norm_epsilon")
    p.add_argument("--dtype", default="F32", choices=["F32", "F16", "BF16"])
    p.add_argument("--shards", type=int, default=1)
    p.add_argument("--untied", action="store_true", help="a head of its own (lm_head.weight)")
    p.add_argument("--prefix", action="store_true", help="names begin with `transformer.`")
    p.add_argument("--linear", action="store_true", help="matrices as [out][in]")
    p.add_argument("--inverse-layer-idx", action="store_true", help="scale_attn_by_inverse_layer_idx")
    p.add_argument("--no-scale", action="store_true", help="scale_attn_weights false")
    p.add_argument("--attn-bias", action="store_true", help="add the mask buffers, which a reader must ignore")
    return p


if __name__ == "__main__":
    options = make_parser().parse_args()
    write_model(options.directory, options)
