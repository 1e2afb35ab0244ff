"""check_trace.py: recomputes a trace's every number in float64 (gpt2.py) and says where the trace differs.

Usage: check_trace.py TRACE MODEL_DIR [--run R] [--log full|attention|steps] [--expect-fault NAME --fault-from S]
Exit: 0 all within the limit, 1 something is wrong or missing, 2 the check could not be made.

Tokens and positions come from the trace's `step` table; a fault that only moves positions is therefore followed, and
everything after it must be right for those positions. Errors are relative, |logged - reference| / scale, where scale is

  scores       the largest |score| of the vector, or the largest ||q||·||k||·factor/sqrt(head_dim) if that is larger:
               the size of a score by chance, since a lone score may be near 0 by cancellation
  weights, head_summary   the largest weight (or max(1, |value|)) times max(1, largest |score|): softmax turns an
               absolute error of a score into a relative error of a weight
  logprob, entropy, probability   likewise with max(1, largest |logit|)
  all others   the largest magnitude in the reference vector
"""
import argparse
import hashlib
import math
import sqlite3
import sys

import numpy as np

import gpt2

TINY = 1e-30
TOP = 20
SHOWN = 20  # violations printed in full; the rest is counted
PHASES_OF_A_LAYER = ["project", "append", "score", "softmax", "mix", "output", "mlp"]
# What a step number s at or after --fault-from must use as position, given P rows in the cache.
FAULT_POSITION = {"off-by-one": lambda P: P + 1, "reset-to-zero": lambda P: 0, "skip-wpe": lambda P: None}
# These move positions too, in a way that depends on the prompt: the logged ones are followed, not judged.
FOLLOWED = {"constant-position", "position-jump"}


class Report:
    """Collects violations, and the worst error of each quantity."""

    def __init__(self, limit):
        self.limit = limit
        self.worst = {}  # quantity: (relative error, where)
        self.violations = []

    def fail(self, quantity, where, message):
        self.violations.append(f"{quantity}: {where}: {message}")

    def expect(self, quantity, where, logged, expected):
        if logged != expected:
            self.fail(quantity, where, f"logged {logged!r}, expected {expected!r}")

    def vector(self, quantity, where, blob, reference, scale=None):
        """`blob`: float32 bytes; `reference`: float64 array of the length it must have."""
        if blob is None:
            return self.fail(quantity, where, "not logged")
        if not isinstance(blob, bytes) or len(blob) != 4 * reference.size:
            size = len(blob) if isinstance(blob, bytes) else type(blob).__name__
            return self.fail(quantity, where, f"BLOB of {size} bytes, expected {4 * reference.size}")
        logged = np.frombuffer(blob, "<f4").astype(np.float64)
        error = np.abs(logged - reference) / (scale or max(np.abs(reference).max(), TINY))
        error = np.where(np.isfinite(error), error, np.inf)  # NaN must not pass a comparison
        i = int(error.argmax())
        self.judge(quantity, f"{where} index {i}", logged[i], reference[i], error[i])

    def number(self, quantity, where, logged, reference, scale):
        if not isinstance(logged, (int, float)):
            return self.fail(quantity, where, f"logged {logged!r}, reference {reference!r}")
        error = abs(logged - reference) / scale
        self.judge(quantity, where, logged, reference, error if math.isfinite(error) else math.inf)

    def judge(self, quantity, where, logged, reference, error):
        if error >= self.worst.get(quantity, (-1,))[0]:
            self.worst[quantity] = (error, where)
        if error > self.limit:
            self.fail(quantity, where, f"logged {logged:.9g}, reference {reference:.9g}, relative error {error:.2e}")


class Check:
    """One run of a trace against the model."""

    def __init__(self, db, run, model, level, report):
        self.db, self.model, self.level, self.report = db, model, level, report
        self.run = db.execute("SELECT * FROM run WHERE run = ?", (run,)).fetchone()
        self.steps = db.execute("SELECT * FROM step WHERE run = ? ORDER BY step", (run,)).fetchall()

    def rows(self, table, *keys):
        """{(key values): row} of this run. For `event` and the like, every row has its own key."""
        found = self.db.execute(f"SELECT * FROM {table} WHERE run = ?", (self.run["run"],)).fetchall()
        by_key = {tuple(row[key] for key in keys): row for row in found}
        if len(by_key) != len(found):
            self.report.fail(table, f"run {self.run['run']}", "two rows with the same key")
        return by_key

    def take(self, table, rows, key, where, wanted):
        """The row of that key, or None; its absence is a violation if the log level promises it."""
        row = rows.pop(key, None)
        if row is None and wanted:
            self.report.fail(table, where, "no row")
        return row

    def nothing_else(self, table, rows):
        for key in sorted(rows):
            self.report.fail(table, f"key {key}", "a row that belongs to no step, layer or head")

    # -- what is known before anything is computed

    def check_run(self, directory):
        for name in ("n_layer", "n_head", "n_embd", "head_dim", "n_ctx", "n_vocab"):
            self.report.expect("run", name, self.run[name], getattr(self.model, name))
        if self.run["model_sha256"]:
            digest = hashlib.sha256()
            for path in gpt2.weight_files(directory):
                with open(path, "rb") as file:
                    digest.update(file.read())
            self.report.expect("run", "model_sha256", self.run["model_sha256"], digest.hexdigest())
        if self.run["finished_at"] is None:
            self.report.fail("run", "finished_at", "the run did not finish")

    def check_rule(self, expect_fault, fault_from):
        """Positions and lengths; the `rule` view must say the same. True if the positions can be recomputed with."""
        fault, start = self.run["fault"], self.run["fault_from_step"] or 0
        if expect_fault:
            self.report.expect("fault", "run", fault, expect_fault)
            self.report.expect("fault", "fault_from_step", start, fault_from)
            fault, start = expect_fault, fault_from
        rule = self.rows("rule", "step")
        usable = bool(self.steps)
        if not usable:
            self.report.fail("step", f"run {self.run['run']}", "no steps")
        for P, s in enumerate(self.steps):
            where = f"step {P}"
            self.report.expect("step", where, s["step"], P)
            self.report.expect("cache_length", where, (s["cache_length_before"], s["cache_length_after"]), (P, P + 1))
            self.report.expect("step", where + " logprob is NULL", s["logprob"] is None, P == 0)
            faulty = fault != "none" and P >= start
            if not (faulty and fault in FOLLOWED):
                expected = FAULT_POSITION[fault](P) if faulty else P
                self.report.expect("position", where, s["position"], expected)
            t = s["position"]
            if t is not None and not 0 <= t < self.model.n_ctx:
                self.report.fail("position", where, f"{t} is no row of wpe")
                usable = False
            if not 0 <= s["token"] < self.model.n_vocab:
                self.report.fail("step", where, f"token {s['token']} is not in the vocabulary")
                usable = False
            row = self.take("rule", rule, (P,), where, True)
            if row:
                verdict = "ok" if t == P else "one too far" if t == P + 1 else "reset to 0" if t == 0 else "wrong"
                self.report.expect("rule", where, (row["cache_length_before"], row["position"], row["off_by"],
                                                   row["verdict"]), (P, t, None if t is None else t - P, verdict))
        self.nothing_else("rule", rule)
        return usable

    def check_events(self):
        """The ten phases in their order, and when the length grows: with append, not before."""
        events = {}
        for row in self.db.execute("SELECT * FROM event WHERE run = ? ORDER BY step, seq", (self.run["run"],)):
            events.setdefault(row["step"], []).append(row)
        for P in range(len(self.steps)):
            expected = [("read_length", None, P), ("embed", None, P)]
            for layer in range(self.model.n_layer):
                expected += [(phase, layer, P + (phase != "project")) for phase in PHASES_OF_A_LAYER]
            expected.append(("logits", None, P + 1))
            # Where a phase belongs to no layer, the layer is NULL (-1 in the C API is the same statement).
            logged = [(e["phase"], None if e["layer"] == -1 else e["layer"], e["cache_length"])
                      for e in events.pop(P, [])]
            for seq, want in enumerate(expected):
                got = logged[seq] if seq < len(logged) else None
                if got != want:
                    self.report.fail("event", f"step {P}, event {seq}",
                                     f"logged {got}, expected (phase, layer, cache_length) = {want}")
                    break  # all later ones would be off as well
            else:
                self.report.expect("event", f"step {P}: number of events", len(logged), len(expected))
        for step in events:
            self.report.fail("event", f"step {step}", "events of a step that is not there")

    # -- everything that is recomputed

    def check_numbers(self):
        tokens = [s["token"] for s in self.steps]
        r = gpt2.forward(self.model, tokens, [s["position"] for s in self.steps])
        self.check_steps(r, tokens)
        self.check_top_tokens(r)
        attention = self.level != "steps"
        vectors = self.rows("step_vector", "step")
        for i, s in enumerate(self.steps):
            row = self.take("step_vector", vectors, (i,), f"step {i}", attention)
            if row:
                for name in ("wte", "x", "logits"):
                    self.report.vector(name, f"step {i}", row[name], getattr(r, name)[i])
                if s["position"] is None:
                    self.report.expect("wpe", f"step {i}", row["wpe"], None)
                else:
                    self.report.vector("wpe", f"step {i}", row["wpe"], r.wpe[i])
        self.nothing_else("step_vector", vectors)
        kv, heads = self.rows("kv_row", "layer", "row"), self.rows("head_step", "step", "layer", "head")
        summaries = self.rows("head_summary", "step", "layer", "head")
        layers = self.rows("layer_step", "step", "layer")
        for l, a in enumerate(r.layers):
            for i in range(len(tokens)):
                where = f"step {i} layer {l}"
                row = self.take("kv_row", kv, (l, i), f"layer {l} row {i}", attention)
                if row:
                    self.report.expect("kv_row", f"layer {l} row {i}: step", row["step"], i)
                    self.report.vector("k", f"layer {l} row {i}", row["k"], a.k[i])
                    self.report.vector("v", f"layer {l} row {i}", row["v"], a.v[i])
                row = self.take("layer_step", layers, (i, l), where, self.level == "full")
                if row:
                    for name in ("x_in", "attn_out", "x_mid", "mlp_out", "x_out"):
                        self.report.vector(name, where, row[name], getattr(a, name)[i])
                for h in range(self.model.n_head):
                    head = f"{where} head {h}"
                    row = self.take("head_step", heads, (i, l, h), head, attention)
                    if row:
                        self.check_head(a, i, l, h, head, row)
                    row = self.take("head_summary", summaries, (i, l, h), head, attention)
                    if row:
                        self.check_summary(a, i, h, head, row)
        for table, rest in (("kv_row", kv), ("head_step", heads), ("head_summary", summaries), ("layer_step", layers)):
            self.nothing_else(table, rest)

    def check_head(self, a, i, layer, h, where, row):
        """One head of one step: q [D], scores [i+1], weights [i+1], out [D]."""
        D = self.model.head_dim
        mine = slice(h * D, (h + 1) * D)
        by_chance = (np.linalg.norm(a.q[i, mine]) * np.linalg.norm(a.k[:i + 1, mine], axis=1).max()
                     * self.model.score_scale(layer) / math.sqrt(D))
        scores, weights = a.scores[h, i, :i + 1], a.weights[h, i, :i + 1]
        self.report.vector("q", where, row["q"], a.q[i, mine])
        self.report.vector("scores", where, row["scores"], scores, max(np.abs(scores).max(), by_chance))
        self.report.vector("weights", where, row["weights"], weights,
                           weights.max() * max(1, np.abs(scores).max()))
        self.report.vector("out", where, row["out"], a.out[h, i])

    def check_summary(self, a, i, h, where, row):
        scores, weights = a.scores[h, i, :i + 1], a.weights[h, i, :i + 1]
        sharp = max(1, np.abs(scores).max())
        entropy = float(gpt2.entropy(weights))
        expected = {"entropy": entropy, "max_weight": weights.max(), "self_weight": weights[-1],
                    "first_weight": weights[0], "weight_sum": 1.0}
        if i > 0:
            expected["previous_weight"] = weights[-2]
        elif row["previous_weight"] not in (None, 0):
            self.report.fail("previous_weight", where, f"logged {row['previous_weight']}, but row 0 is the only one")
        for name, value in expected.items():
            self.report.number("head " + name, where, row[name], float(value), sharp * max(1, abs(value)))
        # Two rows may be equally strong, so the row itself is not compared but how much weight it has.
        if not isinstance(row["max_row"], int) or not 0 <= row["max_row"] <= i:
            self.report.fail("max_row", where, f"logged {row['max_row']!r}, there are rows 0 to {i}")
        else:
            self.report.number("head max_row", where, float(weights[row["max_row"]]), float(weights.max()), sharp)

    def check_steps(self, r, tokens):
        """logprob of each token; that greedy sampling took the best; step_summary, where it has an entropy."""
        summaries = self.rows("step_summary", "step")
        for i, s in enumerate(self.steps):
            where = f"step {i}"
            if i > 0:
                loud = max(1, np.abs(r.logits[i - 1]).max())
                if s["logprob"] is not None:
                    self.report.number("logprob", where, s["logprob"], r.logprob[i], loud)
                if s["source"] == "sampled" and self.run["temperature"] == 0:
                    self.report.number("greedy choice", where, r.logits[i - 1][tokens[i]], r.logits[i - 1].max(), loud)
            summary = self.take("step_summary", summaries, (i,), where, True)
            if summary and (summary["entropy"] is not None or self.level != "steps"):
                loud = max(1, np.abs(r.logits[i]).max())
                self.report.number("entropy", where, summary["entropy"], r.entropy[i], loud * max(1, r.entropy[i]))

    def check_top_tokens(self, r):
        """20 ranks per step. Equal logits may come in any order: each rank's logit must be its token's, and as large as
        the reference's of that rank, so nothing better was left out."""
        rows = self.rows("top_token", "step", "rank")
        text = {row["token"]: row["text"] for row in self.db.execute("SELECT token, text FROM token")}
        for s in self.steps:
            if s["token"] not in text:
                self.report.fail("token", f"token {s['token']}", "fed, but not in the table `token`")
        for i, logits in enumerate(r.logits):
            best, p = np.sort(logits)[::-1], gpt2.softmax(logits)
            seen = set()
            loud = max(1, np.abs(logits).max())
            for rank in range(1, min(TOP, logits.size) + 1):
                where = f"step {i} rank {rank}"
                row = self.take("top_token", rows, (i, rank), where, True)
                if row is None:
                    continue
                token = row["token"]
                if token in seen or not 0 <= token < logits.size:
                    self.report.fail("top_token", where, f"token {token} is there twice, or in no vocabulary")
                    continue
                seen.add(token)
                self.report.expect("top_token", where + ": token_text", row["token_text"], text.get(token))
                self.report.number("top logit", where, row["logit"], logits[token], loud)
                self.report.number("top rank", where, row["logit"], best[rank - 1], loud)
                self.report.number("top probability", where, row["probability"], p[token], loud * p.max())
        self.nothing_else("top_token", rows)


def check(path, directory, run=None, level="full", expect_fault=None, fault_from=0, limit=1e-5):
    """The Report on one run of the trace, or on all. Raises ValueError where nothing can be said."""
    report = Report(limit)
    model = gpt2.load(directory)
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    try:
        runs = [row[0] for row in db.execute("SELECT run FROM run ORDER BY run")]
        if run is not None and run not in runs or not runs:
            raise ValueError(f"{path}: no run {run if run is not None else 'at all'}")
        for number in runs if run is None else [run]:
            c = Check(db, number, model, level, report)
            fault = c.run["fault"]
            if fault != "none" and fault not in FAULT_POSITION and fault not in FOLLOWED:
                raise ValueError(f"run {number}: fault {fault} changes more than positions; it cannot be followed")
            c.check_run(directory)
            usable = c.check_rule(expect_fault, fault_from)
            c.check_events()
            if usable:
                c.check_numbers()
    finally:
        db.close()
    return report


def main():
    p = argparse.ArgumentParser(description="Checks a kvstep trace against a float64 GPT-2.")
    p.add_argument("trace")
    p.add_argument("model_dir")
    p.add_argument("--run", type=int, help="default: every run in the file")
    p.add_argument("--log", default="full", choices=["full", "attention", "steps"], help="what must be there")
    p.add_argument("--expect-fault", choices=list(FAULT_POSITION), help="the positions must be those of this fault")
    p.add_argument("--fault-from", type=int, default=0, metavar="S")
    p.add_argument("--limit", type=float, default=1e-5, help="largest relative error (default %(default)s)")
    o = p.parse_args()
    try:
        report = check(o.trace, o.model_dir, o.run, o.log, o.expect_fault, o.fault_from, o.limit)
    except (OSError, ValueError, KeyError, IndexError, sqlite3.Error) as error:
        print(f"check_trace.py: {error}", file=sys.stderr)
        return 2
    for quantity, (error, where) in report.worst.items():
        print(f"{quantity:20} {error:8.1e}  {where}")
    for violation in report.violations[:SHOWN]:
        print("WRONG " + violation)
    if len(report.violations) > SHOWN:
        print(f"WRONG and {len(report.violations) - SHOWN} more")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
