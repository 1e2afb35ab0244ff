// kvstep_recorder.mjs: writes what a GPT-2 engine of your own does to a kvstep trace. Copy this one file; it needs node 22.5 or newer
// (node:sqlite), or the package better-sqlite3.
//
//     const recorder = await Recorder.open("my.db")
//     recorder.beginRun({ n_layer: 2, n_head: 4, n_embd: 48, n_ctx: 32, n_vocab: 28, engine: "mine" })
//     recorder.step({ token: 0, position: 0, cache_length_before: 0, cache_length_after: 1 })
//     recorder.kvRow(0, 0, k, v)            // layer, row, Float32Array(n_embd) each: what the append left in the cache
//     recorder.finish()
//
// Record what your engine really used: read the row back from the cache after the append, take the position from the argument of
// the wpe look-up. docs/trace-schema.md of kvstep explains every column.
import { existsSync, statSync } from "node:fs"

// The tables of a trace, version 1; kvstep brings its own views along.
export const TABLES = `
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
`
const TOP_TOKENS = 20

// SQLite, from node itself or from better-sqlite3: both have prepare, exec and close. The error says what is missing.
async function connect(path) {
  try {
    return new (await import("node:sqlite")).DatabaseSync(path)
  } catch (error) {
    if (error.code !== "ERR_UNKNOWN_BUILTIN_MODULE") throw error
  }
  let Database
  try {
    Database = (await import("better-sqlite3")).default
  } catch {
    throw new Error(`this is node ${process.version}, which has no SQLite: take node 22.5 or newer, or npm install better-sqlite3`)
  }
  return new Database(path)
}

// A vector as the trace keeps it: little-endian float32. null stays null, which is NULL.
function floats(values) {
  if (values == null) return null
  const bytes = Buffer.alloc(4 * values.length)
  values.forEach((value, i) => bytes.writeFloatLE(value, 4 * i))
  return bytes
}

// A token's bytes on one printable line.
function tokenText(bytes) {
  const text = new TextDecoder().decode(bytes)
  if (text.includes("\ufffd")) return [...bytes].map((b) => `<${b.toString(16).toUpperCase().padStart(2, "0")}>`).join("")
  const marks = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": "\u2420" }
  return text.replace(/[\\\n\r\t ]/g, (c) => marks[c]).replace(/\p{C}/gu, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`)
}

const now = () => new Date().toISOString().replace(/\.\d+Z$/, "Z")

export class Recorder {
  static async open(path, { append = false } = {}) {
    const there = existsSync(path) && statSync(path).size > 0
    if (there && !append) throw new Error(`${path}: exists already; add a run to it, or choose another name`)
    const recorder = new Recorder()
    recorder.db = await connect(path)
    recorder.statements = new Map()
    const found = ["application_id", "user_version"].map((name) => recorder.db.prepare(`PRAGMA ${name}`).get()[name])
    if (there && (found[0] !== 0x4b565354 || found[1] !== 1)) throw new Error(`${path}: not a kvstep trace of version 1`)
    recorder.db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
    if (!there) recorder.db.exec(`BEGIN; ${TABLES} COMMIT`)
    return recorder
  }

  run(sql, ...values) {
    if (!this.statements.has(sql)) this.statements.set(sql, this.db.prepare(sql))
    // NaN is NULL; undefined is not known, which is NULL too
    this.statements.get(sql).run(...values.map((v) => (v === undefined || Number.isNaN(v) ? null : v)))
  }

  insert(table, ...values) {
    this.run(`INSERT INTO ${table} VALUES (${values.map(() => "?").join(", ")})`, ...values)
  }

  // tokens: a Map of id to bytes, the vocabulary. With model_sha256 (of model.safetensors) the file can also hold kvstep's own runs.
  beginRun({ n_layer, n_head, n_embd, n_ctx, n_vocab, tokens = new Map(), engine, engine_version, command, model, model_sha256,
             prompt, temperature }) {
    this.number = this.db.prepare("SELECT 1 + coalesce(max(run), 0) AS n FROM run").get().n
    this.count = this.seq = 0
    this.logprobs = null
    this.texts = []
    this.db.exec("BEGIN IMMEDIATE")
    this.insert("run", this.number, now(), null, engine, engine_version, command, model, model_sha256, n_layer, n_head, n_embd,
                n_embd / n_head, n_ctx, n_vocab, null, null, null, temperature, null, null, prompt)
    for (let i = 0; i < n_vocab; i++) {
      const bytes = tokens.get(i)
      this.texts.push(bytes ? tokenText(bytes) : `<no token ${i}>`)
      this.run("INSERT OR IGNORE INTO token VALUES (?, ?, ?)", i, bytes ?? null, this.texts[i])
    }
    this.run("WITH RECURSIVE more (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM more WHERE n < ?) " +
             "INSERT OR IGNORE INTO number SELECT n FROM more", Math.max(n_ctx, n_embd, 1023))
    this.db.exec("COMMIT")
    this.open = false
  }

  // Begins a step; what is recorded from here on belongs to it, and all of it is one transaction. position: the row of wpe that was
  // really added, null if none was.
  step({ token, position, cache_length_before, cache_length_after, mode = "decode", source = null, seconds = null }) {
    this.settle()
    this.db.exec("BEGIN IMMEDIATE")
    this.open = true
    this.insert("step", this.number, this.count++, mode, token, source, cache_length_before, position, cache_length_after,
                this.logprobs ? this.logprobs[token] : null, seconds)
    this.logprobs = null
  }

  settle() {
    if (this.open) this.db.exec("COMMIT")
    this.open = false
  }

  event(phase, layer, cache_length) {
    this.insert("event", this.number, this.count - 1, this.seq++, phase, layer, cache_length)
  }

  kvRow(layer, row, k, v) {
    this.insert("kv_row", this.number, layer, row, this.count - 1, floats(k), floats(v))
  }

  // q, out [head_dim]; scores, weights [rows attended]
  headStep(layer, head, { q, scores, weights, out }) {
    this.insert("head_step", this.number, this.count - 1, layer, head, floats(q), floats(scores), floats(weights), floats(out))
  }

  layerStep(layer, { x_in, attn_out, x_mid, mlp_out, x_out }) {
    this.insert("layer_step", this.number, this.count - 1, layer, ...[x_in, attn_out, x_mid, mlp_out, x_out].map(floats))
  }

  // With the logits [n_vocab] also the best tokens, and the next token's logprob.
  stepVector({ wte, wpe, x, logits }) {
    this.insert("step_vector", this.number, this.count - 1, ...[wte, wpe, x, logits].map(floats))
    if (!logits) return
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity)
    const total = logits.reduce((sum, x) => sum + Math.exp(x - most), 0)
    this.logprobs = Array.from(logits, (x) => x - most - Math.log(total))
    const order = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b)
    order.slice(0, TOP_TOKENS).forEach((token, i) => {
      this.insert("top_token", this.number, this.count - 1, i + 1, token, this.texts[token], logits[token], Math.exp(this.logprobs[token]))
    })
  }

  // Ends the run and leaves one file. A run without it says that it was cut off.
  finish() {
    this.settle()
    this.run("UPDATE run SET finished_at = ? WHERE run = ?", now(), this.number)
    this.statements.clear()
    this.db.exec("PRAGMA journal_mode = DELETE")
    this.db.close()
  }
}
