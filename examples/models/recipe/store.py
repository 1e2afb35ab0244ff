"""Writes and reads the model files: config.json and model.safetensors.

safetensors is 8 bytes of header length (little endian), a JSON header that gives
type, shape and byte range of each tensor, and then the plain numbers.
"""
import json
import os
import struct

import numpy
import torch

import model as network


def write_safetensors(path, tensors):
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape),
                        "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    # Blanks behind the JSON: the numbers then start at a multiple of 64 bytes, and
    # whoever maps the file into memory can use them where they lie.
    text += b" " * (-(8 + len(text)) % 64)
    part = path + ".part"
    with open(part, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            f.write(array.tobytes())
    os.replace(part, path)  # a reader never sees half a file


def read_safetensors(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            flat = numpy.frombuffer(data[start:end], dtype="<f4")
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def config(vocab_size, n_embd, n_head, n_layer, n_positions, **more):
    """The fields of a GPT-2 config.json, in alphabetical order."""
    fields = dict(
        activation_function="gelu_new", architectures=["GPT2LMHeadModel"],
        attn_pdrop=0.0, embd_pdrop=0.0, initializer_range=0.02,
        layer_norm_epsilon=1e-5, model_type="gpt2", n_ctx=n_positions,
        n_embd=n_embd, n_head=n_head, n_inner=None, n_layer=n_layer,
        n_positions=n_positions, resid_pdrop=0.0, tie_word_embeddings=True,
        torch_dtype="float32", vocab_size=vocab_size, **more)
    return dict(sorted(fields.items()))


def save(folder, model, fields):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(fields, f, indent=2)
        f.write("\n")
    write_safetensors(f"{folder}/model.safetensors", {
        name: p.detach().numpy().astype("<f4")
        for name, p in model.state_dict().items()})


def load(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        fields = json.load(f)
    model = network.GPT2(fields)
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array
                           in read_safetensors(f"{folder}/model.safetensors").items()})
    return model.eval(), fields
