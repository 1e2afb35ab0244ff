"""other_engine.py: a GPT-2 of its own, in float64 numpy, with a cache laid out [layer][head][row][dim]. It decodes rightly or makes mistakes on
purpose, and writes what it did into a trace with plain INSERTs. No line of it is shared with kvstep or the recorders.

An engine is told its mistakes as {name: when}, `when` a function of the step and the layer."""
import json
import math
import sqlite3
import struct

import numpy as np


def load(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    weights = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(data[8 + size + begin : 8 + size + end], dtype="<f4").reshape(entry["shape"])
            weights[name.replace("transformer.", "")] = values.astype(np.float64)
    return json.load(open(folder + "/config.json")), weights


def layer_norm(x, weights, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weights[name + ".weight"] + weights[name + ".bias"]


class Engine:
    def __init__(self, folder, bugs=None, as_projected=False, at_end=None, pads=0, pads_at=1):
        """pads: so many tokens at the start are left padding, at position pads_at (None: counted on), masked for all others. as_projected: K and V are logged as c_attn gave them, not as they lie in the cache. at_end: what happens when the context is full."""
        self.config, self.w = load(folder)
        c = self.config
        self.n_layer, self.n_head, self.n_embd, self.n_ctx = c["n_layer"], c["n_head"], c["n_embd"], c["n_positions"]
        self.dim, self.folder, self.bugs, self.as_projected, self.at_end = self.n_embd // self.n_head, folder, bugs or {}, as_projected, at_end
        self.k = np.zeros((self.n_layer, self.n_head, self.n_ctx + 8, self.dim))
        self.v = np.zeros_like(self.k)
        self.length, self.log, self.pads, self.pads_at, self.temperature = 0, [], pads, pads_at, 0

    def bug(self, name, step, layer=0):
        return name in self.bugs and bool(self.bugs[name](step, layer))

    def position(self, step, length):
        if length < self.pads:
            return length if self.pads_at is None else self.pads_at
        right = length - self.pads
        for name, position in (("padding-counted", length), ("reset-to-zero", 0), ("off-by-one", right + 1), ("behind", right - 1), ("skip-wpe", None), ("scattered", (5 * length + 3) % self.n_ctx)):
            if self.bug(name, step):
                return position
        return right

    def make_room(self):
        if self.length < self.n_ctx or not self.at_end:
            return
        if self.at_end == "drop the oldest":
            self.k[:, :, :-1], self.v[:, :, :-1] = self.k[:, :, 1:].copy(), self.v[:, :, 1:].copy()
        self.length = self.n_ctx - 1

    def feed(self, tokens, source, prefill=False):
        """One call; the logits of its last token."""
        self.make_room()
        step, length, T = len(self.log), self.length, len(tokens)
        lines = []
        for i, token in enumerate(tokens):
            position = self.position(step + i, length + i)
            wpe = np.zeros(self.n_embd) if position is None else self.w["wpe.weight"][position]
            lines.append(dict(token=int(token), source=source, mode="prefill" if prefill else "decode", position=position, before=length + i,
                              x=self.w["wte.weight"][token] + wpe, kv=[], heads=[]))
        x = np.array([line["x"] for line in lines])
        for layer in range(self.n_layer):
            x = self.block(layer, x, step, length, lines)
        logits = layer_norm(x, self.w, "ln_f") @ self.w["wte.weight"].T
        for i, line in enumerate(lines):
            line["logits"] = logits[i]
        self.log += lines
        self.length = length + T
        return logits[-1]

    def block(self, layer, x, step, length, lines):
        w, name, T = self.w, f"h.{layer}.", len(x)
        woven = self.bug("heads-interleaved", step, layer)
        qkv = layer_norm(x, w, name + "ln_1") @ w[name + "attn.c_attn.weight"] + w[name + "attn.c_attn.bias"]
        parts = np.split(qkv, 3, axis=-1)
        if woven:
            q, k, v = (part.reshape(T, self.dim, self.n_head).transpose(2, 0, 1) for part in parts)
        else:
            q, k, v = (part.reshape(T, self.n_head, self.dim).transpose(1, 0, 2) for part in parts)
        cache = 0 if self.bug("cross-layer-shared", step) else layer
        if not self.bug("row-never-written", step, layer):
            self.k[cache, :, length : length + T], self.v[cache, :, length : length + T] = k, v
        out = np.stack([self.attend(layer, cache, q[:, i], length + i, step + i, lines[i]) for i in range(T)])
        for i, line in enumerate(lines):
            order = (lambda a: a.T.reshape(-1)) if woven and self.as_projected else (lambda a: a.reshape(-1))
            line["kv"].append((layer, length + i, order(self.k[cache, :, length + i]), order(self.v[cache, :, length + i])))
        heads = out.transpose(0, 2, 1).reshape(T, -1) if woven else out.reshape(T, -1)
        x = x + heads @ w[name + "attn.c_proj.weight"] + w[name + "attn.c_proj.bias"]
        hidden = layer_norm(x, w, name + "ln_2") @ w[name + "mlp.c_fc.weight"] + w[name + "mlp.c_fc.bias"]
        hidden = 0.5 * hidden * (1 + np.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
        return x + hidden @ w[name + "mlp.c_proj.weight"] + w[name + "mlp.c_proj.bias"]

    def attend(self, layer, cache, q, row, step, line):
        k, v = self.k[cache, :, : row + 1], self.v[cache, :, : row + 1]
        scale = 1 if self.bug("wrong-scale", step, layer) else 1 / math.sqrt(self.dim)
        scores = np.einsum("hd,hrd->hr", q, k) * scale
        if row >= self.pads and not self.bug("padding-unmasked", step, layer):
            scores[:, : self.pads] = np.finfo(np.float32).min
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = np.einsum("hr,hrd->hd", weights, v)
        line["heads"] += [(layer, h, q[h], scores[h], weights[h], out[h]) for h in range(self.n_head)]
        return out

    def decode(self, prompt, count, draft_at=None, keep_draft=False):
        """Greedy. draft_at: two tokens that are guessed, fed and given up, before the token of this number."""
        logits = self.feed(prompt, "prompt", prefill=len(prompt) > 1)
        for i in range(count):
            if i == draft_at:
                order, length = np.argsort(-logits), self.length
                for guess in (order[2], order[5]):
                    self.feed([guess], "sampled")
                if not keep_draft:
                    self.length = length
            logits = self.feed([int(np.argmax(logits))], "sampled")
        return self

    def sample(self, prompt, count, temperature, seed, skip_at=None):
        """At a temperature. skip_at: the token of this number is looked at, and its row is cut off again."""
        self.temperature, chance = temperature, np.random.default_rng(seed)
        logits = self.feed(prompt, "prompt", prefill=len(prompt) > 1)
        for i in range(count):
            token = int(chance.choice(len(logits), p=np.exp(log_softmax(logits / temperature))))
            seen, logits = logits, self.feed([token], "sampled")
            self.log[-1]["seen"] = seen
            if i == skip_at:
                self.length -= 1
                self.log.pop()
        return self


def log_softmax(logits):
    return logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())


EVERYTHING = "kv q scores weights out logits"


def write(path, engine, logged=EVERYTHING, prompt=None, right_claims=True, schema=None, logprob="of the logits"):
    """The trace: `logged` names what is in it. right_claims: the position column says what should have been used."""
    blob = lambda values, name: values.astype("<f4").tobytes() if name in logged.split() else None
    """logprob: "of the logits", "scaled" by the temperature, or None."""
    db = sqlite3.connect(path)
    db.executescript(schema)
    db.execute("INSERT INTO run (run, engine, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab, temperature, prompt) VALUES (1, 'other', ?, ?, ?, ?, ?, ?, ?, ?)",
               (engine.n_layer, engine.n_head, engine.n_embd, engine.dim, engine.n_ctx, engine.config["vocab_size"], engine.temperature, prompt))
    vocabulary = json.load(open(engine.folder + "/vocab.json"))
    db.executemany("INSERT INTO token VALUES (?, ?, ?)", [(i, t.encode() if t.isascii() else None, t) for t, i in vocabulary.items()])
    before = None
    for step, line in enumerate(engine.log):
        chance = None
        seen = line.get("seen", before)
        if seen is not None and logprob:
            chance = float(log_softmax(seen / engine.temperature if logprob == "scaled" else seen)[line["token"]])
        db.execute("INSERT INTO step VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                   (step, line["mode"], line["token"], line["source"], line["before"], line["before"] if right_claims else line["position"],
                    line["before"] + 1, chance if "logits" in logged else None))
        for layer, row, k, v in line["kv"]:
            if "kv" in logged.split() or ("k0" in logged.split() and layer == 0):
                db.execute("INSERT INTO kv_row VALUES (1, ?, ?, ?, ?, ?)", (layer, row, step, k.astype("<f4").tobytes(), blob(v, "kv")))
        for layer, head, q, scores, weights, out in line["heads"]:
            if set(logged.split()) & {"q", "scores", "weights", "out"}:
                db.execute("INSERT INTO head_step VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
                           (step, layer, head, blob(q, "q"), blob(scores, "scores"), blob(weights, "weights"), blob(out, "out")))
        db.execute("INSERT INTO step_vector (run, step, logits) VALUES (1, ?, ?)", (step, blob(line["logits"], "logits")))
        before = line["logits"]
    db.commit()
    db.close()
