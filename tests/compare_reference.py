"""compare_reference.py KVSTEP MODEL FOLDER: `kvstep compare --fault all` against the same numbers worked out here, in float64, from the logits and
weights of the trace that it saved. Nothing of kvstep's arithmetic is used. Exit status 0: they agree.
"""
import csv
import io
import json
import math
import os
import sqlite3
import struct
import subprocess
import sys

kvstep, model, folder = sys.argv[1:]
trace = os.path.join(folder, f"compared-{model}.db")


def compare(*arguments):
    done = subprocess.run([kvstep, "compare", *arguments], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def rows(*arguments):
    return list(csv.DictReader(io.StringIO(compare(*arguments, "-o", "csv"))))


ASKED = ["-m", model, "--fault", "all", "-n", "12"]
live = json.loads(compare(*ASKED, "--save", trace, "-o", "json"))
db = sqlite3.connect(f"file:{trace}?mode=ro", uri=True)


def floats(blob):
    return struct.unpack(f"<{len(blob) // 4}f", blob)


def log_softmax(logits):
    most = max(logits)
    whole = most + math.log(math.fsum(math.exp(x - most) for x in logits))
    return [x - whole for x in logits]


def near(found, expected, what):
    if expected is None or found is None:
        assert found is expected, what
    else:
        assert abs(found - expected) <= 1e-9 * max(1, abs(expected)), (what, found, expected)


def run_of(run):
    """The run's tokens, logits, and weights by layer and head, step by step."""
    tokens = [token for token, in db.execute("SELECT token FROM step WHERE run = ? ORDER BY step", (run,))]
    logits = [floats(blob) for blob, in db.execute("SELECT logits FROM step_vector WHERE run = ? ORDER BY step", (run,))]
    weights = [{} for _ in tokens]
    for step, layer, head, blob in db.execute("SELECT step, layer, head, weights FROM head_step WHERE run = ?", (run,)):
        weights[step][layer, head] = floats(blob)
    return tokens, logits, weights


def attention(a, b):
    def distance(x, y):
        n = max(len(x), len(y))
        x, y = list(x) + [0] * (n - len(x)), list(y) + [0] * (n - len(y))
        return math.fsum(abs(p - q) for p, q in zip(x, y)) / 2
    return {key: distance(a[key], b[key]) for key in a}


def partners(fault, count, prompt):
    """Which step of the faulty run belongs to each of the correct one's, from what each fault is said to do (docs/faults)."""
    after = {"prompt-twice": prompt, "no-rollback": 2, "last-token-twice": 1}.get(fault, 0)
    if fault == "prompt-twice":  # the second time counts
        return [i + prompt for i in range(count)]
    if fault == "last-token-twice":
        return [i if i < prompt - 1 else i + 1 for i in range(count)]
    if fault == "token-skipped":
        return [i if i < prompt else None if i == prompt else i - 1 for i in range(count)]
    return [i if i < prompt else i + after for i in range(count)]


checked = 0
for c in live:
    name = c["b"]
    if c["first_difference"] == "ended":
        continue
    a, b = run_of(c["run_a"]), run_of(c["run_b"])
    stored = db.execute("SELECT step, kl, max_abs_logit, top1_same, logprob_a, logprob_b, attention_distance FROM divergence "
                        "WHERE run_a = ? AND run_b = ? ORDER BY step", (c["run_a"], c["run_b"])).fetchall()
    prompt, = db.execute("SELECT count(*) FROM step WHERE run = ? AND mode = 'prefill'", (c["run_a"],)).fetchone()
    # Past the context's end the reference reads its window anew, which a trace does not hold.
    stored = [row for row in stored if row[0] < len(a[0])]
    pairs = partners(name, len(stored), prompt)
    kl_sum, kept, heads = [], 0, {}
    for row, partner in zip(stored, pairs):
        step, kl, most, same, logprob_a, logprob_b, distance = row
        if partner is None:  # the step was made unseen: no logits of it are in the trace
            continue
        assert b[0][partner] == a[0][step], (name, step)
        p, q = log_softmax(a[1][step]), log_softmax(b[1][partner])
        expected = math.fsum(math.exp(x) * (x - y) for x, y in zip(p, q))
        near(kl, max(expected, 0), (name, step, "kl"))
        near(most, max(abs(x - y) for x, y in zip(a[1][step], b[1][partner])), (name, step, "max"))
        assert same == (p.index(max(p)) == q.index(max(q))), (name, step)
        if step + 1 < len(a[0]):
            near(logprob_a, p[a[0][step + 1]], (name, step, "logprob_a"))
            near(logprob_b, q[a[0][step + 1]], (name, step, "logprob_b"))
        each = attention(a[2][step], b[2][partner])
        near(distance, math.fsum(each.values()) / len(each), (name, step, "attention"))
        if step >= prompt:
            kl_sum.append(expected)
            kept += same
            for key, value in each.items():
                heads.setdefault(key, []).append(value)
        checked += 1
    if len(stored) == c["steps"] + prompt and None not in pairs:
        near(c["kl"], math.fsum(kl_sum) / len(kl_sum), (name, "mean"))
        assert c["top1_kept"] == kept, name
        if c["run_a"] == 1:
            for line in rows(trace, str(c["run_a"]), str(c["run_b"]), "--heads", "--no-store"):
                values = heads[int(line["layer"]), int(line["head"])]
                near(float(line["attention_distance"]), math.fsum(values) / len(values), (name, "head"))
assert checked > 300, checked

# The trace gives what the engines gave; a second time as well, and the file's table with it.
before = db.execute("SELECT * FROM divergence ORDER BY 1, 2, 3").fetchall()
again = {line["b"]: line for line in rows(trace)}
after = db.execute("SELECT * FROM divergence ORDER BY 1, 2, 3").fetchall()
fills = {c["b"] for c in live if c["b"].startswith("context-")} | {"token-skipped"}
for c in live:
    if c["b"] in fills:
        continue
    line = again[c["b"]]
    for key in ("kl", "kl_max", "top1_kept", "max_abs_logit", "attention_distance", "perplexity_b", "first_step",
                "first_value_a", "first_value_b"):
        if c["b"] == "cross-layer-length" and key.startswith("first_value"):
            continue  # the row that layer 1 wrote is no column of a trace; the number of scores is
        assert str("" if c[key] is None else c[key]) == line[key], (c["b"], key, c[key], line[key])
kept = {run for run, name in db.execute("SELECT run, fault FROM run") if name not in fills}
assert [row for row in before if row[1] in kept] == [row for row in after if row[1] in kept]
assert compare(*ASKED, "-o", "csv") == compare(*ASKED, "-o", "csv", "--threads", "1")
