"""gpt2_model.py: reads a GPT-2 folder (safetensors, vocab.json) and has the layers' arithmetic, for engine.py."""
import glob
import hashlib
import json
import math
import os
import sys

import numpy as np


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__" or name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        begin, end = entry["data_offsets"]
        raw = data[start + begin:start + end]
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype(np.float32)
        yield name.removeprefix("transformer."), values.reshape(entry["shape"])


def byte_of_letter():
    """GPT-2's table: every byte has a printable letter in vocab.json."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


class Model:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        if config.get("scale_attn_by_inverse_layer_idx") or not config.get("scale_attn_weights", True):
            sys.exit(f"{folder}: this small engine knows GPT-2's usual scale only")
        self.name = os.path.basename(os.path.normpath(folder))
        files = sorted(glob.glob(os.path.join(folder, "model*.safetensors")))
        self.w = {name: values for path in files for name, values in read_tensors(path)}
        sha = hashlib.sha256()
        for path in files:
            with open(path, "rb") as file:
                sha.update(file.read())
        self.sha256 = sha.hexdigest()
        self.n_layer, self.n_head, self.n_embd = config["n_layer"], config["n_head"], config["n_embd"]
        self.n_vocab, self.n_ctx = len(self.w["wte.weight"]), len(self.w["wpe.weight"])
        self.epsilon, self.eos = config.get("layer_norm_epsilon", 1e-5), config.get("eos_token_id")
        self.activation = ACTIVATIONS[config.get("activation_function", "gelu_new")]
        letters = byte_of_letter()
        with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as file:
            vocab = json.load(file)
        self.tokens = {i: bytes(letters[c] for c in word) if all(c in letters for c in word) else word.encode()
                       for word, i in vocab.items()}

    def encode(self, text):
        ids = {data: i for i, data in self.tokens.items()}
        data, found = text.encode(), []
        while data:
            length = next((n for n in range(min(len(data), 64), 0, -1) if data[:n] in ids), 0)
            if not length:
                sys.exit(f"no token begins with byte {data[0]:#04x}")
            found.append(ids[data[:length]])
            data = data[length:]
        return found

    def affine(self, x, name):
        return x @ self.w[name + ".weight"] + self.w[name + ".bias"]

    def layer_norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        return (centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + np.float32(self.epsilon))
                * self.w[name + ".weight"] + self.w[name + ".bias"])


def gelu_tanh(x):
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x ** 3)))


def gelu(x):
    return (0.5 * x * (1 + np.frompyfunc(math.erf, 1, 1)(x / math.sqrt(2)).astype(np.float64))).astype(np.float32)


ACTIVATIONS = {"gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "gelu": gelu, "relu": lambda x: np.maximum(x, 0)}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
