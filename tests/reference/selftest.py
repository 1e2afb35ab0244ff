"""selftest.py: tests the reference itself: hand-worked numbers, quoted constants, and that a doctored trace is caught.

Usage: selftest.py. The last line is `selftest: N passed, N failed`; exit 1 if any failed.
"""
import math
import os
import sqlite3
import struct
import sys
import tempfile

import numpy as np

import check_trace
import gpt2
import random_model

passed = failed = 0


def ok(name, condition, detail=""):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {name} {detail}")


def near(name, got, want, tolerance=1e-12):
    ok(name, np.allclose(got, want, rtol=tolerance, atol=tolerance), f"got {got}, want {want}")


# ---- functions and number formats ---------------------------------------------------------------------------------


def test_functions():
    # erf from published tables (Abramowitz and Stegun, table 7.1, and more digits from its series).
    near("erf", gpt2.erf(np.array([0, 0.1, 0.5, 1, 2, 3, -1])),
         [0, 0.1124629160182849, 0.5204998778130465, 0.8427007929497149, 0.9953222650189527, 0.9999779095030014,
          -0.8427007929497149])
    # gelu(x) = x·Phi(x); Phi(1) = 0.8413447460685429, Phi(2) = 0.9772498680518208.
    near("gelu", gpt2.gelu(np.array([1.0, -1.0, 2.0])), [0.8413447460685429, -0.1586552539314571, 1.9544997361036416])
    # The tanh form differs in the fourth digit, so the two cannot be mixed up unseen. With u = sqrt(2/pi)·1.044715,
    # x = 1: 1/(1 + exp(-2u)) = 0.8411919906082768.
    near("gelu_new", gpt2.gelu_tanh(np.array([1.0, -1.0])), [0.8411919906082768, 0.8411919906082768 - 1])
    near("relu", gpt2.relu(np.array([-2.0, 3.0])), [0, 3])
    near("softmax does not overflow", gpt2.softmax(np.array([1000.0, 1000.0 + math.log(3)])), [0.25, 0.75])
    near("entropy", gpt2.entropy(np.array([0.5, 0.5, 0.0])), math.log(2))


def test_number_formats():
    def bits(*values):
        return struct.pack(f"<{len(values)}H", *values)
    # BF16: 1 sign, 8 exponent (bias 127), 7 fraction bits. 0x0001 is the smallest subnormal, 2^-133.
    near("bf16", gpt2.decode(bits(0x3F80, 0xC040, 0x3FC0, 0x0000), "BF16"), [1, -3, 1.5, 0], 0)
    ok("bf16 subnormal", gpt2.decode(bits(0x0001), "BF16")[0] == 2.0 ** -133)
    # F16: 1 sign, 5 exponent (bias 15), 10 fraction bits.
    near("f16", gpt2.decode(bits(0x3C00, 0xC200, 0x3E00, 0x7BFF), "F16"), [1, -3, 1.5, 65504], 0)
    ok("f16 subnormal", gpt2.decode(bits(0x0001), "F16")[0] == 2.0 ** -24)
    # Rounding to BF16: 1 + 2^-8 lies half way between 1 and 1 + 2^-7 and goes to the even one, 1; anything more, up.
    halves = np.array([1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, 1 + 2.0 ** -8 + 2.0 ** -20])
    near("bf16 rounding", gpt2.decode(random_model.encode(halves, "BF16"), "BF16"),
         [1, 1 + 2.0 ** -6, 1 + 2.0 ** -7], 0)
    ok("mask buffers", gpt2.is_mask_buffer("h.0.attn.bias") and not gpt2.is_mask_buffer("h.0.attn.c_attn.bias"))


# ---- a model small enough for paper -------------------------------------------------------------------------------


def test_by_hand():
    """n_embd 2, one head, one layer, two tokens, epsilon 0. LayerNorm of (a, b) is then (1, -1) if a > b, else (-1, 1).

    x0 = wte[0] + wpe[0] = (2, 0),          ln_1: (1, -1)
    x1 = wte[1] + wpe[1] = (0, 2) + (1, 1), ln_1: (-1, 1)
    q = ln_1, k = c·ln_1, v = ln_1 + (0, 4): v0 = (1, 3), v1 = (-1, 5)
    scores of row 1: -2c/sqrt(2) and 2c/sqrt(2). With c = sqrt(2)·ln(3)/4 they are -ln(3)/2 and ln(3)/2,
      so the weights are 1/4 and 3/4, and out1 = (1/4 - 3/4, 3/4 + 15/4) = (-1/2, 9/2); out0 = v0
    c_proj swaps the two and adds (1/2, 0):  attn_out0 = (7/2, 1), attn_out1 = (5, -1/2)
    x_mid0 = (11/2, 1), x_mid1 = (6, 5/2);   ln_2 of both: (1, -1)
    c_fc: 3·1 + 1·(-1) + 1 = 3, relu: 3;     mlp c_proj: 3·(1, -2) + (0, 1) = (3, -5)
    x_out0 = (17/2, -4), x_out1 = (9, -5/2); ln_f of both: (1, -1) + (1, 0) = (2, -1)
    logits = wte·(2, -1) = (4, -2); logprob of token 1 = -6 - ln(1 + e^-6) = -6.002475685137730
    """
    c = math.sqrt(2) * math.log(3) / 4
    one, zero, eye = np.ones(2), np.zeros(2), np.eye(2)
    w = {"wte.weight": 2 * eye, "wpe.weight": np.array([[0, 0], [1, 1], [5, 6.0]]),
         "h.0.ln_1.weight": one, "h.0.ln_1.bias": zero, "h.0.ln_2.weight": one, "h.0.ln_2.bias": zero,
         "ln_f.weight": one, "ln_f.bias": np.array([1.0, 0]),
         "h.0.attn.c_attn.weight": np.hstack([eye, c * eye, eye]),
         "h.0.attn.c_attn.bias": np.array([0, 0, 0, 0, 0, 4.0]),
         "h.0.attn.c_proj.weight": eye[::-1], "h.0.attn.c_proj.bias": np.array([0.5, 0]),
         "h.0.mlp.c_fc.weight": np.array([[3.0], [1]]), "h.0.mlp.c_fc.bias": np.array([1.0]),
         "h.0.mlp.c_proj.weight": np.array([[1.0, -2]]), "h.0.mlp.c_proj.bias": np.array([0, 1.0])}
    config = {"n_layer": 1, "n_head": 1, "n_embd": 2, "n_inner": 1, "activation_function": "relu",
              "layer_norm_epsilon": 0}
    model = gpt2.Model(config, w)
    r = gpt2.forward(model, [0, 1])
    a = r.layers[0]
    near("hand: x", r.x, [[2, 0], [1, 3]])
    near("hand: q", a.q, [[1, -1], [-1, 1]])
    near("hand: k", a.k, [[c, -c], [-c, c]])
    near("hand: v", a.v, [[1, 3], [-1, 5]])
    near("hand: scores", a.scores[0, 1], [-math.log(3) / 2, math.log(3) / 2])
    near("hand: weights", a.weights[0], [[1, 0], [0.25, 0.75]])
    near("hand: out", a.out[0], [[1, 3], [-0.5, 4.5]])
    near("hand: attn_out", a.attn_out, [[3.5, 1], [5, -0.5]])
    near("hand: x_mid", a.x_mid, [[5.5, 1], [6, 2.5]])
    near("hand: mlp_out", a.mlp_out, [[3, -5], [3, -5]])
    near("hand: x_out", a.x_out, [[8.5, -4], [9, -2.5]])
    near("hand: logits", r.logits, [[4, -2], [4, -2]])
    near("hand: logprob", r.logprob[1], -6.002475685137730)
    faulty = gpt2.forward(model, [0, 1, 1], [0, 2, None])
    near("hand: other positions", faulty.x, [[2, 0], [5, 8], [0, 2]])
    for key, value, scale in (("scale_attn_weights", False, math.sqrt(2)), ("n_head", 2, math.sqrt(2))):
        changed = gpt2.forward(gpt2.Model({**config, key: value}, w), [0, 1]).layers[0]
        # Two heads of one dimension: each has half of the sum, and no sqrt(2): -c = -ln(3)·sqrt(2)/4.
        want = -math.log(3) / 2 * scale / (2 if key == "n_head" else 1)
        near(f"hand: {key}", changed.scores[0, 1, 0], want)
    # Layer 1's scores are halved under scale_attn_by_inverse_layer_idx, layer 0's are as before.
    model.scale_attn_by_inverse_layer_idx = True
    near("hand: inverse layer idx", [model.score_scale(0) * math.sqrt(2), model.score_scale(1) * math.sqrt(2)], [1, .5])


# ---- random models ------------------------------------------------------------------------------------------------


def make(directory, *options):
    o = random_model.make_parser().parse_args([directory, "--seed", "5", "--n-ctx", "17", "--n-vocab", "61", *options])
    random_model.write_model(directory, o)
    return gpt2.load(directory)


def test_causal(directory):
    model = make(directory)
    a, b = gpt2.forward(model, [3, 1, 4, 1, 5]), gpt2.forward(model, [3, 1, 4, 9, 2])
    ok("causal: the past does not change", np.allclose(a.logits[:3], b.logits[:3], rtol=0, atol=1e-13))
    ok("causal: the present does", not np.allclose(a.logits[3:], b.logits[3:], atol=1e-3))
    short = gpt2.forward(model, [3, 1, 4])
    ok("causal: a prefix alone gives the same", np.allclose(a.logits[:3], short.logits, rtol=0, atol=1e-13))


def test_file_forms(directory):
    """However the same weights are stored, the same numbers come out."""
    plain = make(os.path.join(directory, "plain"))
    want = gpt2.forward(plain, [3, 1, 4]).logits
    for name, options in (("prefix", ["--prefix"]), ("linear", ["--linear"]), ("shards", ["--shards", "3"]),
                          ("masks", ["--attn-bias"]), ("all", ["--prefix", "--linear", "--shards", "2", "--attn-bias"])):
        near(f"stored as {name}", gpt2.forward(make(os.path.join(directory, name), *options), [3, 1, 4]).logits, want)
    half = gpt2.forward(make(os.path.join(directory, "half"), "--dtype", "F16"), [3, 1, 4]).logits
    ok("stored as F16: near, not equal", 0 < np.abs(half - want).max() < 0.05)
    brain = gpt2.forward(make(os.path.join(directory, "brain"), "--dtype", "BF16"), [3, 1, 4]).logits
    ok("stored as BF16: near, not equal", 0 < np.abs(brain - want).max() < 0.5)
    untied = make(os.path.join(directory, "untied"), "--untied")
    ok("untied head", not np.allclose(untied.w["lm_head.weight"], untied.w["wte.weight"]))


# ---- doctored traces ----------------------------------------------------------------------------------------------

# The documented columns and nothing else; what are views in the real schema are tables here.
SCHEMA = """
CREATE TABLE run(run, created_at, finished_at, engine, engine_version, command, model, model_sha256, n_layer, n_head,
  n_embd, head_dim, n_ctx, n_vocab, fault, fault_from_step, seed, temperature, top_k, top_p, prompt);
CREATE TABLE token(token, bytes, text);
CREATE TABLE step(run, step, mode, token, source, cache_length_before, position, cache_length_after, logprob, seconds);
CREATE TABLE event(run, step, seq, phase, layer, cache_length);
CREATE TABLE kv_row(run, layer, row, step, k, v);
CREATE TABLE head_step(run, step, layer, head, q, scores, weights, out);
CREATE TABLE layer_step(run, step, layer, x_in, attn_out, x_mid, mlp_out, x_out);
CREATE TABLE step_vector(run, step, wte, wpe, x, logits);
CREATE TABLE top_token(run, step, rank, token, token_text, logit, probability);
CREATE TABLE rule(run, step, cache_length_before, position, off_by, verdict);
CREATE TABLE head_summary(run, step, layer, head, entropy, max_weight, max_row, self_weight, first_weight,
  previous_weight, weight_sum);
CREATE TABLE step_summary(run, step, mode, token_text, position, chosen_token_text, logprob, entropy, top_token_text);
"""


def f32(x):
    return np.asarray(x).astype("<f4").tobytes()


def write_trace(path, model, tokens, positions=None, fault="none", fault_from=None):
    """The reference's own numbers as a trace."""
    r = gpt2.forward(model, tokens, positions)
    positions = positions or list(range(len(tokens)))
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)

    def insert(table, *values):
        values = [v.item() if isinstance(v, np.generic) else v for v in values]
        db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(values))})", values)

    insert("run", 1, "now", "now", "selftest", "1", None, "random", None, model.n_layer, model.n_head, model.n_embd,
           model.head_dim, model.n_ctx, model.n_vocab, fault, fault_from, 0, 0.0, 0, 1.0, "")
    for token in range(model.n_vocab):
        insert("token", token, f"{token}".encode(), f"<{token}>")
    for i, (token, t) in enumerate(zip(tokens, positions)):
        insert("step", 1, i, "prefill", token, "prompt", i, t, i + 1, r.logprob[i] if i else None, 0.0)
        off_by = None if t is None else t - i
        verdict = "ok" if t == i else "one too far" if t == i + 1 else "reset to 0" if t == 0 else "wrong"
        insert("rule", 1, i, i, t, off_by, verdict)
        insert("step_summary", 1, i, "prefill", "", t, "", r.logprob[i] if i else None, r.entropy[i], "")
        insert("step_vector", 1, i, f32(r.wte[i]), None if t is None else f32(r.wpe[i]), f32(r.x[i]), f32(r.logits[i]))
        p = gpt2.softmax(r.logits[i])
        for rank, best in enumerate(np.argsort(-r.logits[i])[:20], 1):
            insert("top_token", 1, i, rank, best, f"<{best}>", r.logits[i][best], p[best])
        events = [("read_length", None, i), ("embed", None, i)]
        for l in range(model.n_layer):
            events.append(("project", l, i))
            events += [(e, l, i + 1) for e in ("append", "score", "softmax", "mix", "output", "mlp")]
        for seq, event in enumerate([*events, ("logits", None, i + 1)]):
            insert("event", 1, i, seq, *event)
        for l, a in enumerate(r.layers):
            insert("kv_row", 1, l, i, i, f32(a.k[i]), f32(a.v[i]))
            insert("layer_step", 1, i, l, *(f32(m[i]) for m in (a.x_in, a.attn_out, a.x_mid, a.mlp_out, a.x_out)))
            for h in range(model.n_head):
                q = a.q[i].reshape(model.n_head, model.head_dim)[h]
                w = a.weights[h, i, :i + 1]
                insert("head_step", 1, i, l, h, f32(q), f32(a.scores[h, i, :i + 1]), f32(w), f32(a.out[h, i]))
                insert("head_summary", 1, i, l, h, gpt2.entropy(w), w.max(), int(w.argmax()), w[-1], w[0],
                       w[-2] if i else None, w.sum())
    db.commit()
    return db


def nudge(value):
    """One number changed by 1%, or, of a BLOB, its largest."""
    if isinstance(value, bytes):
        x = np.frombuffer(value, "<f4").copy()
        x[np.abs(x).argmax()] *= np.float32(1.01)
        return x.tobytes()
    return value * 1.01 if isinstance(value, float) else value + 1


# table, column, new value (a function of the old), the quantity that must be named. The row changed is that of step 3
# (layer 1, head 1, rank 2 where the table has them).
FLIPS = (
    [("step_vector", c, nudge, c) for c in ("wte", "wpe", "x", "logits")]
    + [("kv_row", c, nudge, c) for c in ("k", "v")]
    + [("head_step", c, nudge, c) for c in ("q", "scores", "weights", "out")]
    + [("layer_step", c, nudge, c) for c in ("x_in", "attn_out", "x_mid", "mlp_out", "x_out")]
    + [("head_summary", c, nudge, "head " + c)
       for c in ("entropy", "max_weight", "self_weight", "first_weight", "previous_weight", "weight_sum")]
    + [("head_summary", "max_row", lambda v: (v + 1) % 4, "head max_row"),
       ("head_summary", "max_row", lambda v: 4, "max_row"),
       ("top_token", "token", lambda v: (v + 1) % 61, "top logit"), ("top_token", "logit", nudge, "top logit"),
       ("top_token", "probability", nudge, "top probability"), ("top_token", "token_text", lambda v: "?", "top_token"),
       ("step", "logprob", nudge, "logprob"), ("step", "logprob", lambda v: None, "step"),
       ("step", "position", nudge, "position"), ("step", "position", lambda v: None, "position"),
       ("step", "position", lambda v: 17, "position"), ("step", "cache_length_before", nudge, "cache_length"),
       ("step", "cache_length_after", nudge, "cache_length"), ("step", "token", lambda v: (v + 1) % 61, "wte"),
       ("step_summary", "entropy", nudge, "entropy"), ("rule", "verdict", lambda v: "one too far", "rule"),
       ("rule", "off_by", nudge, "rule"), ("kv_row", "step", nudge, "kv_row"),
       ("event", "cache_length", nudge, "event"), ("event", "phase", lambda v: "append", "event"),
       ("run", "n_ctx", nudge, "run"), ("run", "finished_at", lambda v: None, "run"),
       ("run", "model_sha256", lambda v: "0" * 64, "run"),
       # a score too few, as when a token does not attend to itself; a NaN; a missing BLOB
       ("head_step", "scores", lambda v: v[:-4], "scores"),
       ("layer_step", "x_in", lambda v: f32([np.nan]) + v[4:], "x_in"), ("head_step", "out", lambda v: None, "out")]
)
PLACE = {"kv_row": "row = 3 AND layer = 1", "layer_step": "step = 3 AND layer = 1", "top_token": "step = 3 AND rank = 2",
         "head_step": "step = 3 AND layer = 1 AND head = 1", "head_summary": "step = 3 AND layer = 1 AND head = 1",
         "event": "step = 3 AND seq = 0", "run": "run = 1"}


def test_doctored(directory):
    model = make(directory)
    tokens = [3, 1, 4, 1, 5, 9]
    path = os.path.join(directory, "trace.db")
    db = write_trace(path, model, tokens)

    def quantities(**options):
        return {violation.split(":")[0] for violation in check_trace.check(path, directory, **options).violations}

    ok("an honest trace passes", not quantities(), quantities())
    for table, column, change, quantity in FLIPS:
        place = PLACE.get(table, "step = 3")
        (old,) = db.execute(f"SELECT {column} FROM {table} WHERE {place}").fetchone()
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {place}", (change(old),))
        db.commit()
        found = quantities()
        ok(f"flip {table}.{column}", quantity in found, f"found {found}")
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {place}", (old,))
    for table in ("step_vector", "kv_row", "head_step", "layer_step", "head_summary", "top_token", "step_summary",
                  "rule", "event", "token"):
        place = PLACE.get(table, "token = 1" if table == "token" else "step = 3")
        columns = db.execute(f"SELECT * FROM {table} WHERE {place}").fetchall()
        db.execute(f"DELETE FROM {table} WHERE {place}")
        db.commit()
        ok(f"missing row of {table}", table in quantities())
        db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(columns[0]))})", columns)
    db.execute("DELETE FROM layer_step")
    db.commit()
    ok("log attention needs no layer_step", not quantities(level="attention"), quantities(level="attention"))
    ok("log full does", quantities() == {"layer_step"})
    db.close()


def test_faults(directory):
    model = make(directory)
    tokens = [3, 1, 4, 1, 5, 9]
    for fault, positions in (("off-by-one", [0, 1, 2, 4, 5, 6]), ("reset-to-zero", [0, 1, 2, 0, 0, 0]),
                             ("skip-wpe", [0, 1, 2, None, None, None]), ("position-jump", [0, 1, 2, 8, 9, 10])):
        path = os.path.join(directory, fault + ".db")
        write_trace(path, model, tokens, positions, fault, 3).close()
        report = check_trace.check(path, directory)
        ok(f"{fault} is followed", not report.violations, report.violations[:3])
        if fault in check_trace.FAULT_POSITION:
            ok(f"{fault} is as expected", not check_trace.check(path, directory, expect_fault=fault,
                                                                fault_from=3).violations)
            wrong = check_trace.check(path, directory, expect_fault=fault, fault_from=2).violations
            ok(f"{fault} from another step is not", any(v.startswith("position") for v in wrong))
    path = os.path.join(directory, "odd.db")
    write_trace(path, model, tokens, fault="wrong-scale", fault_from=0).close()
    try:
        check_trace.check(path, directory)
        ok("a fault that cannot be followed is refused", False)
    except ValueError:
        ok("a fault that cannot be followed is refused", True)


def main():
    test_functions()
    test_number_formats()
    test_by_hand()
    with tempfile.TemporaryDirectory() as directory:
        for i, test in enumerate((test_causal, test_file_forms, test_doctored, test_faults)):
            test(os.path.join(directory, str(i)))
    print(f"selftest: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
