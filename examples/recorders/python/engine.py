"""engine.py: a GPT-2 that decodes with a KV cache, in numpy, recorded for kvstep; --bug makes the mistakes that people make.

    python3 engine.py ../../models/reverse 'position>' -o mine.db
    python3 engine.py ../../models/reverse 'position>' -o bug.db --bug off-by-one
    kvstep check bug.db -m reverse

It shares no code with kvstep: its own safetensors reader, its own arithmetic, its own cache. The prompt is cut by longest match over
vocab.json, which is simpler than GPT-2's merges and may give other tokens; --ids gives them exactly.
E = n_embd, H = n_head, D = head_dim, T = tokens in this call, R = rows attended.
"""
import argparse
import math
import shlex
import sys
import time

try:
    import numpy as np
except ImportError:
    sys.exit("engine.py: needs NumPy: apt-get install python3-numpy (for /usr/bin/python3), or pip install numpy")

from gpt2_model import Model, softmax
from kvstep_recorder import Recorder

# ---- the cache and the forward pass ---------------------------------------------------------------------------------


class Cache:
    def __init__(self, model, dtype=np.float32):
        self.k = np.zeros((model.n_layer, model.n_ctx, model.n_embd), dtype)
        self.v = np.zeros_like(self.k)
        self.length = 0


class Engine:
    """bug: the name of the mistake that is made from step bug_from on. What is said to the recorder is what really happened."""

    def __init__(self, model, recorder, bug=None, bug_from=0, dtype=np.float32):
        self.model, self.recorder, self.bug_name, self.bug_from = model, recorder, bug, bug_from
        self.cache, self.steps, self.prompt_length = Cache(model, dtype), 0, 0

    def bug(self, name):
        return name == self.bug_name and self.steps >= self.bug_from

    def full(self):
        return self.cache.length >= self.model.n_ctx

    def positions(self, start, count):
        """The rule: the first token's position is the cache length before the append."""
        first = start
        if self.bug("off-by-one"):
            first = start + 1  # the length was read after the append
        if self.bug("reset-to-zero"):
            first = 0
        if self.bug("constant-position"):
            first = self.prompt_length
        if self.bug("position-jump"):
            first = start + self.prompt_length - 1
        return np.arange(first, first + count)

    def forward(self, tokens, source, logprob=None):
        """Feeds T tokens in one call (T = 1: a decode step); returns the last one's logits [n_vocab]."""
        m, cache, r = self.model, self.cache, self.recorder
        started, start, T = time.monotonic(), self.cache.length, len(tokens)
        positions, after = self.positions(start, T), start + T
        if self.bug("context-overflow") and start == m.n_ctx:  # no room: drop the oldest row, stay at the last position
            cache.k[:, :-1], cache.v[:, :-1] = cache.k[:, 1:].copy(), cache.v[:, 1:].copy()
            cache.length, positions, after = start - 1, positions - 1, start
        elif start + T > m.n_ctx or positions[-1] >= m.n_ctx:
            raise IndexError("the context is full")
        wte, wpe = m.w["wte.weight"][tokens], m.w["wpe.weight"][positions]
        x = wte if self.bug("skip-wpe") else wte + wpe
        if self.bug("overwrite-last"):
            after = start
        first = r.count
        for i, token in enumerate(tokens):
            r.step(token=token, position=None if self.bug("skip-wpe") else int(positions[i]), cache_length_before=start + i,
                   cache_length_after=min(start + i + 1, after), mode="decode" if T == 1 else "prefill", source=source,
                   logprob=logprob)
            r.event("read_length", cache_length=start + i)
            r.event("embed", cache_length=start + i)
        entered = x
        for layer in range(m.n_layer):
            x = self.block(layer, x, first, start)
            if layer == 0 and self.bug("cross-layer-length"):
                cache.length += T  # the later layers believe that their rows are there already
        cache.length = after
        logits = m.layer_norm(x, "ln_f") @ m.w.get("lm_head.weight", m.w["wte.weight"]).T
        for i in range(T):
            r.event("logits", cache_length=min(start + i + 1, after), step=first + i)
            r.step_vector(wte[i], None if self.bug("skip-wpe") else wpe[i], entered[i], logits[i], step=first + i)
            r.took((time.monotonic() - started) / T, step=first + i)
        self.steps += T
        return logits[-1]

    def split(self, x):
        """[rows][E] as [H][rows][D]: head h has the numbers h·D … h·D + D - 1."""
        H, D = self.model.n_head, self.model.n_embd // self.model.n_head
        if self.bug("heads-interleaved"):
            return x.reshape(len(x), D, H).transpose(2, 0, 1)
        return x.reshape(len(x), H, D).transpose(1, 0, 2)

    def merge(self, heads):
        order = (1, 2, 0) if self.bug("heads-interleaved") else (1, 0, 2)
        return heads.transpose(order).reshape(heads.shape[1], self.model.n_embd)

    def append(self, layer, k, v):
        """Puts T rows behind the others; returns the number of the first."""
        cache, T, at = self.cache, len(k), self.cache.length
        if at + T > self.model.n_ctx:
            raise IndexError("the cache is full")
        if self.bug("overwrite-last") and at > 0:
            at -= 1
        if not self.bug("row-never-written"):
            cache.k[layer, at:at + T] = k
            if not self.bug("k-without-v"):
                cache.v[layer, at:at + T] = v
        return at

    def mask(self, T, R):
        """[T][R], true where a token may look: at rows up to its own."""
        if self.bug("prefill-unmasked") or self.bug("softmax-extent"):
            return np.ones((T, R), bool)
        if self.bug("mask-corner"):
            return np.tril(np.ones((T, R), bool))  # aligned to the top left, as if there were no past
        return np.tril(np.ones((T, R), bool), R - T)

    def attend(self, layer, q, end):
        """q [T][E] over the first `end` rows; returns q, scores, weights, out by head, and who may look where."""
        D = self.model.n_embd // self.model.n_head
        if self.bug("softmax-extent"):
            end = self.model.n_ctx
        k, v = (c[layer, :end].astype(np.float32) for c in (self.cache.k, self.cache.v))
        q, k, v = self.split(q), self.split(k), self.split(v)
        scale = 1.0 if self.bug("wrong-scale") else 1 / math.sqrt(D)
        seen = self.mask(q.shape[1], end)
        scores = q @ k.transpose(0, 2, 1) * np.float32(scale)  # [H][T][R]
        weights = softmax(np.where(seen, scores, -np.inf))
        return q, scores, weights, weights @ v, seen

    def block(self, layer, x, first, start):
        m, r, T, name = self.model, self.recorder, len(x), f"h.{layer}."
        q, k, v = np.split(m.affine(m.layer_norm(x, name + "ln_1"), name + "attn.c_attn"), 3, axis=1)

        def told(phase, grown):
            for i in range(T):
                r.event(phase, layer, self.cache.length + i + grown, step=first + i)

        told("project", 0)
        late = self.bug("attend-before-append") and T == 1 and start > 0
        if late:
            attended = self.attend(layer, q, self.cache.length)
            for phase in ("score", "softmax", "mix"):
                told(phase, 0)
        row = self.append(layer, k, v)
        grown = row + 1 - self.cache.length
        told("append", grown)
        for i in range(T):
            r.kv_row(layer, row + i, self.cache.k[layer, row + i], self.cache.v[layer, row + i], step=first + i)
        if not late:
            attended = self.attend(layer, q, row + T)
            for phase in ("score", "softmax", "mix"):
                told(phase, grown)
        self.record_heads(layer, first, *attended)
        attn_out = m.affine(self.merge(attended[3]), name + "attn.c_proj")
        told("output", grown)
        x_mid = x + attn_out
        mlp_out = m.affine(m.activation(m.affine(m.layer_norm(x_mid, name + "ln_2"), name + "mlp.c_fc")), name + "mlp.c_proj")
        told("mlp", grown)
        for i in range(T):
            r.layer_step(layer, x[i], attn_out[i], x_mid[i], mlp_out[i], x_mid[i] + mlp_out[i], step=first + i)
        return x_mid + mlp_out

    def record_heads(self, layer, first, q, scores, weights, out, seen):
        """A causal mask's rows are left out. Where one token alone is masked, that is a mistake: its weights say so."""
        T = q.shape[1]
        for i in range(T):
            rows = seen.shape[1] if T == 1 else int(np.flatnonzero(seen[i])[-1]) + 1
            for head in range(self.model.n_head):
                self.recorder.head_step(layer, head, q[head, i], scores[head, i, :rows], weights[head, i, :rows], out[head, i],
                                        step=first + i)


# ---- generating -----------------------------------------------------------------------------------------------------


class Nobody:
    """A recorder that writes nothing."""
    count = 0

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def peek(engine, token):
    """The token that would follow `token`, with nothing recorded and the cache left as it was: how a draft is verified."""
    cache, recorder = engine.cache, engine.recorder
    kept = cache.k.copy(), cache.v.copy(), cache.length, engine.steps
    engine.recorder = Nobody()
    following = best(engine.forward([token], "sampled"))
    engine.recorder = recorder
    cache.k[:], cache.v[:], cache.length, engine.steps = kept
    return following


def best(logits, rank=0):
    return int(np.argsort(-logits, kind="stable")[rank])


def log_softmax(logits, token):
    return float(logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))


def generate(engine, prompt, count):
    """Yields the tokens that are shown: each is fed to get the next."""
    engine.prompt_length = len(prompt)
    logits = engine.forward(prompt, "prompt")
    if engine.bug_name == "prompt-twice":
        logits = engine.forward(prompt, "prompt")  # on top of its own cache
    if engine.bug_name == "last-token-twice":
        logits = engine.forward(prompt[-1:], "prompt")  # prefill has fed it already
    done = False
    for _ in range(count):
        token = best(logits)
        if token == engine.model.eos or (engine.full() and engine.bug_name != "context-overflow"):
            return
        if engine.bug("token-skipped") and not done:
            yield token  # a draft that was right is shown, and only the token after it fed
            token, done = peek(engine, token), True
        if engine.bug("no-rollback") and not done:
            draft = engine.forward([best(logits, 1)], "sampled")  # a draft that is given up again …
            engine.forward([best(draft)], "sampled")  # … and its rows stay in the cache
            done = True
        yield token
        logits = engine.forward([token], "sampled", log_softmax(logits, token))


BUGS = ("off-by-one reset-to-zero constant-position skip-wpe position-jump attend-before-append overwrite-last k-without-v "
        "row-never-written stale-cache prompt-twice last-token-twice token-skipped no-rollback mask-corner prefill-unmasked "
        "wrong-scale softmax-extent heads-interleaved cross-layer-length context-overflow").split()


def main():
    parser = argparse.ArgumentParser(description="A small GPT-2 with a KV cache, recorded for kvstep.")
    parser.add_argument("model", help="a folder with config.json, model.safetensors and vocab.json")
    parser.add_argument("prompt", nargs="?", default="")
    parser.add_argument("--ids", help="the prompt as token ids: 15,14,18")
    parser.add_argument("-n", "--tokens", type=int, default=16, help="how many to generate (default: 16)")
    parser.add_argument("-o", "--output", required=True, metavar="TRACE")
    parser.add_argument("--append", action="store_true", help="add a run to TRACE")
    parser.add_argument("--schema", help="kvstep's schema.sql: the trace gets its views too")
    parser.add_argument("--bug", choices=BUGS, help="make this mistake")
    parser.add_argument("--bug-from", type=int, metavar="STEP", help="from this step on (default: the first after the prompt)")
    parser.add_argument("--float16-cache", action="store_true", help="keep K and V as float16, which is no mistake")
    o = parser.parse_args()
    model = Model(o.model)
    prompt = [int(i) for i in o.ids.split(",")] if o.ids else model.encode(o.prompt)
    if not prompt or not all(0 <= i < model.n_vocab for i in prompt):
        parser.error("the prompt is empty, or not of this vocabulary")
    more = {}
    if o.schema:
        with open(o.schema, encoding="utf-8") as file:
            more["schema"] = file.read()
    recorder = Recorder(o.output, append=o.append, **more)
    recorder.begin_run(n_layer=model.n_layer, n_head=model.n_head, n_embd=model.n_embd, n_ctx=model.n_ctx, n_vocab=model.n_vocab,
                       tokens=model.tokens, engine="engine.py", engine_version="1", command=shlex.join(sys.argv),
                       model=model.name, model_sha256=model.sha256, temperature=0,
                       prompt=b"".join(model.tokens[i] for i in prompt).decode(errors="replace"))
    in_prompt = o.bug in ("prefill-unmasked", "heads-interleaved")  # where the prompt's rows show the mistake too
    bug_from = o.bug_from if o.bug_from is not None else 0 if in_prompt else len(prompt)
    engine = Engine(model, recorder, o.bug, bug_from, np.float16 if o.float16_cache else np.float32)
    if o.bug == "stale-cache":  # another prompt was answered before, and the cache was not emptied
        engine.recorder = Nobody()
        engine.forward(prompt[::-1], "prompt")
        engine.recorder, engine.steps = recorder, 0
    sys.stdout.buffer.write(b"".join(model.tokens[i] for i in prompt))
    try:
        for token in generate(engine, prompt, o.tokens):
            sys.stdout.buffer.write(model.tokens.get(token, b"?"))
    except IndexError as error:
        recorder.abandon()
        print(f"\nengine.py: {error}", file=sys.stderr)
    sys.stdout.buffer.write(b"\n")
    recorder.finish()


if __name__ == "__main__":
    main()
