"""gpt2.py: GPT-2 in float64, written from the formulas, to check what a float32 engine with a KV cache computes.

It goes the other way round: there is no cache. All tokens go through the model together, row i sees rows <= i because
a mask says so, and everything is summed in float64 by numpy. If a cached float32 decode and this agree to float32's
accuracy, the cache changed nothing.

Formulas: Radford et al. 2019 (GPT-2), Vaswani et al. 2017 (attention), Ba et al. 2016 (LayerNorm), Hendrycks and
Gimpel 2016 (GELU). Shapes are written in comments: T tokens, E = n_embd, H = n_head, D = head_dim, V = n_vocab,
I = n_inner.
"""
import json
import math
import os
import struct

import numpy as np

# ---- reading safetensors ------------------------------------------------------------------------------------------

# The file: u64 length of a JSON header, the header, then the bytes of all tensors. All little-endian.
MAX_HEADER = 100 << 20


def decode(raw, dtype):
    """The numbers in `raw` (bytes) stored as F64, F32, F16 or BF16, in float64: every one of them is exact there."""
    if dtype == "F64":
        return np.frombuffer(raw, "<f8").astype(np.float64)
    if dtype == "F32":
        return np.frombuffer(raw, "<f4").astype(np.float64)
    if dtype == "F16":
        return np.frombuffer(raw, "<f2").astype(np.float64)
    if dtype == "BF16":
        # A bfloat16 is the upper half of a float32: put 16 zero bits below it.
        upper = np.frombuffer(raw, "<u2").astype(np.uint32)
        return (upper << 16).view(np.float32).astype(np.float64)
    raise ValueError(f"dtype {dtype} is not one of F64, F32, F16, BF16")


def is_mask_buffer(name):
    """Older files carry the causal mask as if it were a weight. `attn.bias` is that mask; `attn.c_attn.bias` is not."""
    return name.endswith((".attn.bias", ".attn.masked_bias"))


def read_safetensors(path):
    """{name: float64 array} of one file, mask buffers left out."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    if length > MAX_HEADER or 8 + length > len(data):
        raise ValueError(f"{path}: the header claims {length} bytes")
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or is_mask_buffer(name):
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin:8 + length + end]
        tensors[name] = decode(raw, entry["dtype"]).reshape(entry["shape"])
    return tensors


def weight_files(directory):
    """The paths of the weights: one file, or the shards that the index names, in the order of their names."""
    single = os.path.join(directory, "model.safetensors")
    if os.path.exists(single):
        return [single]
    with open(single + ".index.json", encoding="utf-8") as file:
        shards = set(json.load(file)["weight_map"].values())
    return [os.path.join(directory, shard) for shard in sorted(shards)]


# ---- the model ----------------------------------------------------------------------------------------------------

def erf(x):
    """The error function of each element. math.erf is C's, good to the last bits; numpy alone has none."""
    return np.frompyfunc(math.erf, 1, 1)(x).astype(np.float64)


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def relu(x):
    return np.maximum(x, 0)


ACTIVATIONS = {"gelu": gelu, "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "relu": relu}


class Model:
    """A GPT-2: its shape and its weights by their short names ("h.0.attn.c_attn.weight"), matrices all [in][out]."""

    def __init__(self, config, tensors):
        self.w = {name[len("transformer."):] if name.startswith("transformer.") else name: tensor
                  for name, tensor in tensors.items()}
        if len(self.w) != len(tensors):
            raise ValueError("a weight is there twice, with and without `transformer.`")
        self.n_layer = config["n_layer"]
        self.n_head = config["n_head"]
        self.n_embd = config["n_embd"]
        self.head_dim = self.n_embd // self.n_head
        self.n_vocab, self.n_ctx = len(self.w["wte.weight"]), len(self.w["wpe.weight"])
        self.n_inner = config.get("n_inner") or 4 * self.n_embd
        self.epsilon = config.get("layer_norm_epsilon", 1e-5)
        self.activation = ACTIVATIONS[config.get("activation_function", "gelu_new")]
        self.scale_attn_weights = config.get("scale_attn_weights", True)
        self.scale_attn_by_inverse_layer_idx = config.get("scale_attn_by_inverse_layer_idx", False)
        # Conv1D keeps [in][out], Linear [out][in]. Only c_attn can tell: it is E x 3E, while c_proj is square.
        if self.w["h.0.attn.c_attn.weight"].shape == (3 * self.n_embd, self.n_embd):
            for name in list(self.w):
                if name.startswith("h.") and self.w[name].ndim == 2:
                    self.w[name] = self.w[name].T
        # A head of its own is used where the file has one; else the model must say that wte serves for both.
        if "lm_head.weight" not in self.w:
            if not config.get("tie_word_embeddings", True):
                raise ValueError("the head is not tied, and there is no lm_head.weight")
            self.w["lm_head.weight"] = self.w["wte.weight"]
        self.check_shapes()

    def check_shapes(self):
        """numpy broadcasts silently; so every shape is compared here, once."""
        E, I = self.n_embd, self.n_inner
        shapes = {"wte.weight": (self.n_vocab, E), "wpe.weight": (self.n_ctx, E), "lm_head.weight": (self.n_vocab, E),
                  "ln_f.weight": (E,), "ln_f.bias": (E,)}
        for layer in range(self.n_layer):
            for name, size in (("ln_1", (E,)), ("ln_2", (E,)), ("attn.c_attn", (E, 3 * E)), ("attn.c_proj", (E, E)),
                               ("mlp.c_fc", (E, I)), ("mlp.c_proj", (I, E))):
                shapes[f"h.{layer}.{name}.weight"] = size
                shapes[f"h.{layer}.{name}.bias"] = size[-1:]
        for name, shape in shapes.items():
            if name not in self.w or self.w[name].shape != shape:
                found = self.w[name].shape if name in self.w else "nothing"
                raise ValueError(f"{name}: expected {shape}, found {found}")

    def affine(self, x, name):
        """x [T][in] through the matrix `name` [in][out], plus its bias [out]: [T][out]."""
        return x @ self.w[name + ".weight"] + self.w[name + ".bias"]

    def layer_norm(self, x, name):
        """Each row of x [T][E] to mean 0 and variance 1 (divided by E, not E-1), times gain, plus bias: [T][E]."""
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred ** 2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + self.epsilon) * self.w[name + ".weight"] + self.w[name + ".bias"]

    def score_scale(self, layer):
        """What q·k is multiplied by in this layer."""
        scale = 1 / math.sqrt(self.head_dim) if self.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.scale_attn_by_inverse_layer_idx else scale


def load(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = {}
    for path in weight_files(directory):
        for name, tensor in read_safetensors(path).items():
            if name in tensors:
                raise ValueError(f"{path}: {name} is in another shard too")
            tensors[name] = tensor
    return Model(config, tensors)


# ---- the computation ----------------------------------------------------------------------------------------------

def log_softmax(x):
    """log(exp(x) / sum exp(x)) along the last axis; the largest is taken off first so that exp cannot overflow."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def softmax(x):
    return np.exp(log_softmax(x))


def entropy(p):
    """-sum p ln p in nats along the last axis; 0 ln 0 is 0."""
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)


class Layer:
    """What one layer computed for all tokens: x_in, q, k, v, attn_out, x_mid, mlp_out, x_out [T][E];
    scores, weights [H][T][T] (row i holds i+1 numbers, past them -inf and 0); out [H][T][D]."""


class Result:
    """wte, wpe, x [T][E] (wpe is 0 where none was added); layers, a list of Layer; logits [T][V];
    logprob [T]: of token i, as row i-1 predicted it (NaN for the first); entropy [T]: of row i's prediction."""


def forward(model, tokens, positions=None):
    """Everything that a correct computation has for `tokens` (ids), when token i is told that its position is
    positions[i], or gets no position at all where that is None. Without `positions`: 0, 1, 2 ..."""
    T = len(tokens)
    if positions is None:
        positions = list(range(T))
    r = Result()
    r.wte = model.w["wte.weight"][np.array(tokens)]
    r.wpe = np.array([np.zeros(model.n_embd) if t is None else model.w["wpe.weight"][t] for t in positions])
    r.x = r.wte + r.wpe
    r.layers = []
    x = r.x
    for layer in range(model.n_layer):
        r.layers.append(block(model, layer, x))
        x = r.layers[-1].x_out
    r.logits = model.layer_norm(x, "ln_f") @ model.w["lm_head.weight"].T  # [T][E] x [E][V]: [T][V]
    predicted = log_softmax(r.logits)
    r.logprob = np.array([np.nan] + [predicted[i - 1][tokens[i]] for i in range(1, T)])
    r.entropy = entropy(np.exp(predicted))
    return r


def block(model, layer, x):
    """One transformer block over x [T][E]: attention, then the MLP, each added to what came in."""
    H, D = model.n_head, model.head_dim
    T = len(x)
    name = f"h.{layer}."
    a = Layer()
    a.x_in = x
    qkv = model.affine(model.layer_norm(x, name + "ln_1"), name + "attn.c_attn")  # [T][3E]
    a.q, a.k, a.v = np.split(qkv, 3, axis=1)

    def heads(m):
        """[T][E], heads side by side, as [H][T][D]."""
        return m.reshape(T, H, D).transpose(1, 0, 2)

    a.scores = heads(a.q) @ heads(a.k).transpose(0, 2, 1) * model.score_scale(layer)  # [H][T][T]
    a.scores = np.where(np.tril(np.ones((T, T), bool)), a.scores, -np.inf)  # row i sees columns <= i
    a.weights = softmax(a.scores)  # [H][T][T]
    a.out = a.weights @ heads(a.v)  # [H][T][D]
    side_by_side = a.out.transpose(1, 0, 2).reshape(T, H * D)  # [T][E]
    a.attn_out = model.affine(side_by_side, name + "attn.c_proj")
    a.x_mid = a.x_in + a.attn_out
    inner = model.activation(model.affine(model.layer_norm(a.x_mid, name + "ln_2"), name + "mlp.c_fc"))  # [T][I]
    a.mlp_out = model.affine(inner, name + "mlp.c_proj")
    a.x_out = a.x_mid + a.mlp_out
    return a
