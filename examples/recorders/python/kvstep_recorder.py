"""kvstep_recorder.py: writes what a GPT-2 engine of your own does to a kvstep trace. Copy this one file; it needs numpy.

    recorder = Recorder("my.db")
    recorder.begin_run(n_layer=2, n_head=4, n_embd=48, n_ctx=32, n_vocab=28, engine="mine", prompt="ab")
    recorder.step(token=0, position=0, cache_length_before=0, cache_length_after=1)
    recorder.kv_row(layer=0, row=0, k=k, v=v)               # [n_embd] each: what the append left in the cache
    recorder.step_vector(logits=logits)                     # optional, like everything but run and step
    recorder.finish()

Record what your engine really used, not what it should have used: read the row back from the cache after the append, take
the position from the argument of the wpe look-up. docs/trace-schema.md of kvstep explains every column.
"""
import codecs
import datetime
import os
import sqlite3

import numpy as np

# The tables of a trace, version 1; kvstep brings its own views along. For the views in any other SQLite shell, give the
# Recorder the whole of kvstep's schema.sql instead.
TABLES = """
PRAGMA application_id = 0x4B565354;
PRAGMA user_version = 1;
CREATE TABLE run (run INTEGER PRIMARY KEY, created_at TEXT, finished_at TEXT, engine TEXT, engine_version TEXT, command TEXT,
  model TEXT, model_sha256 TEXT, n_layer INTEGER NOT NULL CHECK (n_layer > 0), n_head INTEGER NOT NULL CHECK (n_head > 0),
  n_embd INTEGER NOT NULL CHECK (n_embd > 0), head_dim INTEGER NOT NULL CHECK (head_dim > 0),
  n_ctx INTEGER NOT NULL CHECK (n_ctx > 0), n_vocab INTEGER NOT NULL CHECK (n_vocab > 0), fault TEXT,
  fault_from_step INTEGER, seed INTEGER, temperature REAL, top_k INTEGER, top_p REAL, prompt,
  CHECK (n_head * head_dim = n_embd));
CREATE TABLE token (token INTEGER PRIMARY KEY, bytes BLOB, text TEXT);
CREATE TABLE step (run INTEGER NOT NULL REFERENCES run DEFERRABLE INITIALLY DEFERRED,
  step INTEGER NOT NULL CHECK (step >= 0), mode TEXT CHECK (mode IN ('prefill', 'decode')),
  token INTEGER NOT NULL REFERENCES token DEFERRABLE INITIALLY DEFERRED,
  source TEXT CHECK (source IN ('prompt', 'sampled', 'forced')), cache_length_before INTEGER, position INTEGER,
  cache_length_after INTEGER, logprob REAL, seconds REAL, PRIMARY KEY (run, step)) WITHOUT ROWID;
CREATE INDEX step_by_length ON step (run, cache_length_before);
CREATE TABLE event (run INTEGER NOT NULL, step INTEGER NOT NULL, seq INTEGER NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('read_length', 'embed', 'project', 'append', 'score', 'softmax', 'mix', 'output',
                                       'mlp', 'logits')),
  layer INTEGER, cache_length INTEGER, PRIMARY KEY (run, step, seq),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED) WITHOUT ROWID;
CREATE TABLE kv_row (run INTEGER NOT NULL, layer INTEGER NOT NULL, row INTEGER NOT NULL CHECK (row >= 0),
  step INTEGER NOT NULL, k BLOB CHECK (typeof(k) IN ('blob', 'null') AND length(k) % 4 = 0),
  v BLOB CHECK (typeof(v) IN ('blob', 'null') AND length(v) % 4 = 0), PRIMARY KEY (run, layer, row, step),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE head_step (run INTEGER NOT NULL, step INTEGER NOT NULL, layer INTEGER NOT NULL, head INTEGER NOT NULL,
  q BLOB CHECK (typeof(q) IN ('blob', 'null') AND length(q) % 4 = 0),
  scores BLOB CHECK (typeof(scores) IN ('blob', 'null') AND length(scores) % 4 = 0),
  weights BLOB CHECK (typeof(weights) IN ('blob', 'null') AND length(weights) % 4 = 0),
  out BLOB CHECK (typeof(out) IN ('blob', 'null') AND length(out) % 4 = 0), PRIMARY KEY (run, step, layer, head),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE layer_step (run INTEGER NOT NULL, step INTEGER NOT NULL, layer INTEGER NOT NULL,
  x_in BLOB CHECK (typeof(x_in) IN ('blob', 'null')), attn_out BLOB CHECK (typeof(attn_out) IN ('blob', 'null')),
  x_mid BLOB CHECK (typeof(x_mid) IN ('blob', 'null')), mlp_out BLOB CHECK (typeof(mlp_out) IN ('blob', 'null')),
  x_out BLOB CHECK (typeof(x_out) IN ('blob', 'null')), PRIMARY KEY (run, step, layer),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE step_vector (run INTEGER NOT NULL, step INTEGER NOT NULL, wte BLOB CHECK (typeof(wte) IN ('blob', 'null')),
  wpe BLOB CHECK (typeof(wpe) IN ('blob', 'null')), x BLOB CHECK (typeof(x) IN ('blob', 'null')),
  logits BLOB CHECK (typeof(logits) IN ('blob', 'null') AND length(logits) % 4 = 0), PRIMARY KEY (run, step),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE top_token (run INTEGER NOT NULL, step INTEGER NOT NULL, rank INTEGER NOT NULL CHECK (rank >= 1),
  token INTEGER NOT NULL REFERENCES token DEFERRABLE INITIALLY DEFERRED, token_text TEXT, logit REAL, probability REAL,
  PRIMARY KEY (run, step, rank), FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED) WITHOUT ROWID;
CREATE TABLE divergence (run_a INTEGER NOT NULL REFERENCES run (run) DEFERRABLE INITIALLY DEFERRED,
  run_b INTEGER NOT NULL REFERENCES run (run) DEFERRABLE INITIALLY DEFERRED, step INTEGER NOT NULL, kl REAL,
  max_abs_logit REAL, top1_same INTEGER CHECK (top1_same IN (0, 1)), logprob_a REAL, logprob_b REAL,
  attention_distance REAL, PRIMARY KEY (run_a, run_b, step)) WITHOUT ROWID;
CREATE TABLE head_stat (run INTEGER NOT NULL, step INTEGER NOT NULL, layer INTEGER NOT NULL, head INTEGER NOT NULL,
  entropy REAL, max_weight, max_row INTEGER, self_weight, first_weight, previous_weight, weight_sum,
  PRIMARY KEY (run, step, layer, head),
  FOREIGN KEY (run, step, layer, head) REFERENCES head_step DEFERRABLE INITIALLY DEFERRED) WITHOUT ROWID;
CREATE TABLE step_stat (run INTEGER NOT NULL, step INTEGER NOT NULL, entropy REAL, PRIMARY KEY (run, step),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED) WITHOUT ROWID;
CREATE TABLE number (n INTEGER PRIMARY KEY);
INSERT INTO number VALUES (0);
"""
TOP_TOKENS = 20


def floats(values):
    """A vector as the trace keeps it: little-endian float32. None stays None, which is NULL."""
    return None if values is None else np.ascontiguousarray(values, "<f4").tobytes()


codecs.register_error("kvstep_bytes", lambda e: ("".join(f"<{b:02X}>" for b in e.object[e.start:e.end]), e.end))


def token_text(data):
    """A token's bytes on one printable line."""
    shown = data.decode("utf-8", "kvstep_bytes")
    for mark, name in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), (" ", "\u2420")):
        shown = shown.replace(mark, name)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Recorder:
    """One trace that is being written. Steps are numbered by `step`, and each method below it speaks of the last step
    unless it is given another. A decode step's transaction ends where the next begins, a prefill batch's after it."""

    def __init__(self, path, append=False, schema=TABLES):
        there = os.path.exists(path) and os.path.getsize(path) > 0
        if there and not append:
            raise FileExistsError(f"{path}: exists already; add a run to it, or choose another name")
        self.db = sqlite3.connect(path, isolation_level=None)
        found = [self.db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if there and found != [0x4B565354, 1]:
            raise ValueError(f"{path}: not a kvstep trace of version 1")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        if not there:
            self.db.executescript("BEGIN;" + schema + "COMMIT;")

    def insert(self, table, *values):
        self.db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def begin_run(self, *, n_layer, n_head, n_embd, n_ctx, n_vocab, tokens=None, engine=None, engine_version=None,
                  command=None, model=None, model_sha256=None, prompt=None, temperature=None):
        """tokens: {id: bytes}, the vocabulary. With model_sha256 (of model.safetensors) the file can also hold kvstep's
        own runs of that model, and `kvstep check` knows that it has the right weights."""
        self.number = self.db.execute("SELECT 1 + coalesce(max(run), 0) FROM run").fetchone()[0]
        self.count, self.batch, self.seq, self.logprobs = 0, False, 0, None
        self.db.execute("BEGIN IMMEDIATE")
        self.insert("run", self.number, now(), None, engine, engine_version, command, model, model_sha256, n_layer, n_head,
                    n_embd, n_embd // n_head, n_ctx, n_vocab, None, None, None, temperature, None, None, prompt)
        vocabulary = [(i, *self.vocabulary_entry(i, tokens or {})) for i in range(n_vocab)]
        self.db.executemany("INSERT OR IGNORE INTO token VALUES (?, ?, ?)", vocabulary)
        self.texts = {i: text for i, _, text in vocabulary}
        self.db.execute("WITH RECURSIVE more (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM more WHERE n < ?) "
                        "INSERT OR IGNORE INTO number SELECT n FROM more", (max(n_ctx, n_embd, 1023),))
        self.db.execute("COMMIT")
        return self.number

    @staticmethod
    def vocabulary_entry(token, tokens):
        data = tokens.get(token)
        return (None, f"<no token {token}>") if data is None else (data, token_text(data))

    def step(self, *, token, position, cache_length_before, cache_length_after, mode="decode", source=None, logprob=None,
             seconds=None):
        """Begins a step. In prefill call it once for each token of the batch; cache_length_before counts the batch's
        earlier tokens. position: the row of wpe that was really added, None if none was. logprob: ln of the token's probability where it
        was chosen; None: by the last logits that step_vector was given."""
        if self.db.in_transaction and not (self.batch and mode == "prefill"):
            self.db.execute("COMMIT")
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")
        self.batch = mode == "prefill"
        if logprob is None and self.logprobs is not None and self.logprobs[0] == self.count - 1:
            logprob = float(self.logprobs[1][token])
        self.insert("step", self.number, self.count, mode, int(token), source, cache_length_before, position,
                    cache_length_after, logprob, seconds)
        self.count += 1
        return self.count - 1

    def which(self, step):
        return self.count - 1 if step is None else step

    def took(self, seconds, step=None):
        self.db.execute("UPDATE step SET seconds = ? WHERE run = ? AND step = ?", (seconds, self.number, self.which(step)))

    def event(self, phase, layer=None, cache_length=None, step=None):
        """What happens now, in the order in which it happens; cache_length: rows in that layer's cache afterwards."""
        self.insert("event", self.number, self.which(step), self.seq, phase, layer, cache_length)
        self.seq += 1

    def kv_row(self, layer, row, k, v, step=None):
        self.insert("kv_row", self.number, layer, row, self.which(step), floats(k), floats(v))

    def head_step(self, layer, head, q=None, scores=None, weights=None, out=None, step=None):
        """q, out [head_dim]; scores, weights [rows attended]: leave out what a mask hides, and nothing else."""
        self.insert("head_step", self.number, self.which(step), layer, head, floats(q), floats(scores), floats(weights),
                    floats(out))

    def layer_step(self, layer, x_in=None, attn_out=None, x_mid=None, mlp_out=None, x_out=None, step=None):
        self.insert("layer_step", self.number, self.which(step), layer, *map(floats, (x_in, attn_out, x_mid, mlp_out, x_out)))

    def step_vector(self, wte=None, wpe=None, x=None, logits=None, step=None):
        """With the logits [n_vocab] also the best tokens, and the next token's logprob."""
        step = self.which(step)
        self.insert("step_vector", self.number, step, floats(wte), floats(wpe), floats(x), floats(logits))
        if logits is None:
            return
        wide = np.asarray(logits, np.float64)
        shifted = wide - wide.max()
        logprobs = shifted - np.log(np.exp(shifted).sum())
        for rank, token in enumerate(np.argsort(-wide, kind="stable")[:TOP_TOKENS]):
            self.insert("top_token", self.number, step, rank + 1, int(token), self.texts[int(token)], float(wide[token]),
                        float(np.exp(logprobs[token])))
        self.logprobs = step, logprobs
        next_token = self.db.execute("SELECT token FROM step WHERE run = ? AND step = ?", (self.number, step + 1)).fetchone()
        if next_token:
            self.db.execute("UPDATE step SET logprob = ? WHERE run = ? AND step = ?",
                            (float(logprobs[next_token[0]]), self.number, step + 1))

    def abandon(self):
        """Takes back the step (or batch) under way."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def finish(self):
        """Ends the run and leaves one file. A run without it says that it was cut off."""
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("UPDATE run SET finished_at = ? WHERE run = ?", (now(), self.number))
        self.db.execute("COMMIT")
        self.db.execute("PRAGMA journal_mode = DELETE")
        self.db.close()
