-- schema.sql: the tables and views of a kvstep trace, version 1. docs/trace-schema.md explains them.
--
-- Plain SQL for any SQLite from 3.37 on, with or without its math functions. Another engine makes a trace by running
-- this file on a new database and inserting into the tables; nothing else is needed.

PRAGMA application_id = 0x4B565354; -- 'KVST'
PRAGMA user_version = 1;

-- ---- tables that every engine may write ----------------------------------------------------------------------------

CREATE TABLE run (
  -- One decode from an empty cache on. run counts from 1, everything else in a trace from 0.
  run             INTEGER PRIMARY KEY,
  created_at      TEXT,    -- ISO 8601, UTC
  finished_at     TEXT,    -- the same; NULL: the run was cut off (every step that is here is whole all the same)
  engine          TEXT,    -- 'kvstep', or who wrote the run
  engine_version  TEXT,
  command         TEXT,    -- the command line
  model           TEXT,    -- a name to show
  model_sha256    TEXT,    -- SHA-256 of the weights, in hexadecimal
  n_layer         INTEGER NOT NULL CHECK (n_layer > 0),
  n_head          INTEGER NOT NULL CHECK (n_head > 0),
  n_embd          INTEGER NOT NULL CHECK (n_embd > 0),
  head_dim        INTEGER NOT NULL CHECK (head_dim > 0), -- n_embd / n_head
  n_ctx           INTEGER NOT NULL CHECK (n_ctx > 0),    -- rows of wpe
  n_vocab         INTEGER NOT NULL CHECK (n_vocab > 0),  -- rows of wte
  fault           TEXT,    -- the injected deviation; 'none' for a correct run; NULL: not known
  fault_from_step INTEGER, -- the first step that deviates
  seed            INTEGER, -- of the sampler, its 64 bits as a signed number
  temperature     REAL,    -- 0: always the largest logit
  top_k           INTEGER, -- 0: all
  top_p           REAL,    -- 1: all
  prompt,                  -- TEXT, or BLOB where the bytes are no UTF-8
  CHECK (n_head * head_dim = n_embd)
);

CREATE TABLE token (
  -- The vocabulary, once per file.
  token INTEGER PRIMARY KEY, -- its id, the row of wte
  bytes BLOB,                -- exact; NULL: an id without a token
  text  TEXT                 -- printable on one line: visible blanks, \n, <E6><AD> for bytes that are no UTF-8
);

CREATE TABLE step (
  -- One token's way through the model.
  run                 INTEGER NOT NULL REFERENCES run DEFERRABLE INITIALLY DEFERRED,
  step                INTEGER NOT NULL CHECK (step >= 0),
  mode                TEXT CHECK (mode IN ('prefill', 'decode')),
  token               INTEGER NOT NULL REFERENCES token DEFERRABLE INITIALLY DEFERRED,
  source              TEXT CHECK (source IN ('prompt', 'sampled', 'forced')),
  cache_length_before INTEGER, -- rows in the cache before this token's own (in prefill: rows of the same batch included)
  position            INTEGER, -- the row of wpe that was added; NULL: none
  cache_length_after  INTEGER,
  logprob             REAL,    -- ln of this token's probability as the step before saw it; NULL for the first
  seconds             REAL,    -- wall clock; in prefill the batch's time divided by its tokens
  PRIMARY KEY (run, step)
) WITHOUT ROWID;
CREATE INDEX step_by_length ON step (run, cache_length_before); -- finds the step that appended a row

CREATE TABLE event (
  -- The order in which the phases really ran: ORDER BY seq.
  run          INTEGER NOT NULL,
  step         INTEGER NOT NULL,
  seq          INTEGER NOT NULL, -- counts over the whole run
  phase        TEXT NOT NULL CHECK (phase IN ('read_length', 'embed', 'project', 'append', 'score', 'softmax', 'mix',
                                              'output', 'mlp', 'logits')),
  layer        INTEGER,          -- NULL at read_length, embed and logits
  cache_length INTEGER,          -- rows in this layer's cache just after this phase
  PRIMARY KEY (run, step, seq),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;

CREATE TABLE kv_row (
  -- What one append left in one layer's cache. A correct run appends each row once; a fault may write a row again.
  run   INTEGER NOT NULL,
  layer INTEGER NOT NULL,
  row   INTEGER NOT NULL CHECK (row >= 0),
  step  INTEGER NOT NULL, -- the step that wrote it
  k     BLOB CHECK (typeof(k) IN ('blob', 'null') AND length(k) % 4 = 0), -- float32[n_embd], heads side by side
  v     BLOB CHECK (typeof(v) IN ('blob', 'null') AND length(v) % 4 = 0), -- float32[n_embd]
  PRIMARY KEY (run, layer, row, step),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE head_step (
  -- The attention of one head in one step.
  run     INTEGER NOT NULL,
  step    INTEGER NOT NULL,
  layer   INTEGER NOT NULL,
  head    INTEGER NOT NULL,
  q       BLOB CHECK (typeof(q) IN ('blob', 'null') AND length(q) % 4 = 0),             -- float32[head_dim]
  scores  BLOB CHECK (typeof(scores) IN ('blob', 'null') AND length(scores) % 4 = 0),   -- float32[rows attended]
  weights BLOB CHECK (typeof(weights) IN ('blob', 'null') AND length(weights) % 4 = 0), -- float32[rows attended]
  out     BLOB CHECK (typeof(out) IN ('blob', 'null') AND length(out) % 4 = 0),         -- float32[head_dim]
  PRIMARY KEY (run, step, layer, head),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE layer_step (
  -- The residual stream on its way through one layer; float32[n_embd] each.
  run      INTEGER NOT NULL,
  step     INTEGER NOT NULL,
  layer    INTEGER NOT NULL,
  x_in     BLOB CHECK (typeof(x_in) IN ('blob', 'null')),     -- as it enters
  attn_out BLOB CHECK (typeof(attn_out) IN ('blob', 'null')), -- heads concatenated, through c_proj
  x_mid    BLOB CHECK (typeof(x_mid) IN ('blob', 'null')),    -- x_in + attn_out
  mlp_out  BLOB CHECK (typeof(mlp_out) IN ('blob', 'null')),
  x_out    BLOB CHECK (typeof(x_out) IN ('blob', 'null')),    -- x_mid + mlp_out
  PRIMARY KEY (run, step, layer),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE step_vector (
  -- What goes in at the bottom of the model and comes out at its top.
  run    INTEGER NOT NULL,
  step   INTEGER NOT NULL,
  wte    BLOB CHECK (typeof(wte) IN ('blob', 'null')),                             -- float32[n_embd]: wte[token]
  wpe    BLOB CHECK (typeof(wpe) IN ('blob', 'null')),                             -- wpe[position]; NULL: none was added
  x      BLOB CHECK (typeof(x) IN ('blob', 'null')),                               -- their sum
  logits BLOB CHECK (typeof(logits) IN ('blob', 'null') AND length(logits) % 4 = 0), -- float32[n_vocab]
  PRIMARY KEY (run, step),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE top_token (
  -- The most probable next tokens after a step, the lower id first among equals.
  run         INTEGER NOT NULL,
  step        INTEGER NOT NULL,
  rank        INTEGER NOT NULL CHECK (rank >= 1), -- 1: the best
  token       INTEGER NOT NULL REFERENCES token DEFERRABLE INITIALLY DEFERRED,
  token_text  TEXT,
  logit       REAL,
  probability REAL,                               -- over the whole vocabulary
  PRIMARY KEY (run, step, rank),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;

CREATE TABLE divergence (
  -- Two runs compared step by step.
  run_a              INTEGER NOT NULL REFERENCES run (run) DEFERRABLE INITIALLY DEFERRED,
  run_b              INTEGER NOT NULL REFERENCES run (run) DEFERRABLE INITIALLY DEFERRED,
  step               INTEGER NOT NULL, -- run_a's; run_b's is the one that was fed the same token
  kl                 REAL,    -- Σ p_a·ln(p_a / p_b) over the next token, in nats
  max_abs_logit      REAL,    -- the largest difference of two logits
  top1_same          INTEGER CHECK (top1_same IN (0, 1)),
  logprob_a          REAL,    -- ln of the probability of the token that run_a fed next
  logprob_b          REAL,
  attention_distance REAL,    -- how far apart the attention weights are: 0 alike, 1 disjoint
  PRIMARY KEY (run_a, run_b, step)
) WITHOUT ROWID;

-- ---- private tables: they may change without notice ------------------------------------------------------------------

CREATE TABLE head_stat (
  -- head_summary's numbers, stored by a writer that has them at hand. An INTEGER takes half the room of a REAL: a weight's is its
  -- float32's 32 bits, signed; weight_sum's counts 2^-53 from 1 on. What is a REAL is the number itself; no type, so that it stays one.
  run INTEGER NOT NULL, step INTEGER NOT NULL, layer INTEGER NOT NULL, head INTEGER NOT NULL,
  entropy REAL, max_weight, max_row INTEGER, self_weight, first_weight, previous_weight, weight_sum,
  PRIMARY KEY (run, step, layer, head),
  FOREIGN KEY (run, step, layer, head) REFERENCES head_step DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;

CREATE TABLE step_stat (
  -- step_summary's entropy, stored by a writer that has it at hand.
  run INTEGER NOT NULL, step INTEGER NOT NULL, entropy REAL,
  PRIMARY KEY (run, step),
  FOREIGN KEY (run, step) REFERENCES step DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;

CREATE TABLE number (
  -- 0, 1, 2 …: joined on n < length it makes lines out of a vector. As many as max(n_ctx, n_embd) or more.
  n INTEGER PRIMARY KEY
);
WITH RECURSIVE count (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM count WHERE n < 1023)
INSERT INTO number SELECT n FROM count;

CREATE TABLE byte_list (
  -- The bytes 01 … FF: instr(bytes, b) is the value of the byte b. (00 is not in it, and not found is 0.)
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  bytes BLOB NOT NULL
);
INSERT INTO byte_list VALUES (1, CAST(
  X'0102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F'
  || X'202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F'
  || X'404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F'
  || X'606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F'
  || X'808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9F'
  || X'A0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF'
  || X'C0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDF'
  || X'E0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF' AS BLOB));

CREATE TABLE float_scale (
  -- How a float32 becomes a number. high: its upper 9 bits, sign and exponent; f: its lower 23. Then
  -- (f + hidden) * scale * again - minus is its value, exactly, with its sign of zero; ±infinity; and NULL for a NaN
  -- (there -inf - -inf). scale is ±2^(exponent - 150).
  high   INTEGER PRIMARY KEY,
  hidden INTEGER NOT NULL,
  scale  REAL NOT NULL,
  again  REAL NOT NULL,
  minus  REAL NOT NULL
);
-- Powers of two by halving and doubling 1, which is exact; a decimal literal need not be.
WITH RECURSIVE
  down (e, p) AS (SELECT 150, 1.0 UNION ALL SELECT e - 1, p / 2 FROM down WHERE e > 1),
  up (e, p) AS (SELECT 151, 2.0 UNION ALL SELECT e + 1, p * 2 FROM up WHERE e < 254),
  power (e, p) AS (SELECT e, p FROM down UNION ALL SELECT e, p FROM up),
  sign (s, factor) AS (VALUES (0, 1.0), (256, -1.0))
INSERT INTO float_scale
SELECT s + e, 8388608, factor * p, 1.0, 0.0 FROM power, sign
UNION ALL SELECT s, 0, factor * p, 1.0, 0.0 FROM power, sign WHERE e = 1
UNION ALL SELECT s + 255, 0, 1e308, factor * -1e308, factor * -9e999 FROM sign;

-- ---- views -----------------------------------------------------------------------------------------------------------
-- float32 numbers are decoded here by the way that float_scale describes. CROSS JOIN keeps the order of the loops: first
-- the key, then the numbers of that vector.

CREATE VIEW attention AS
-- What each head attended to: one line per score. Give the keys (run, step, layer, head) to have it at once.
SELECT
  h.run AS run,
  h.step AS step,
  s.position AS position,         -- the step's position: the row of wpe that was added
  t.text AS token_text,           -- the step's token
  h.layer AS layer,
  h.head AS head,
  n.n AS row,                     -- which cache row is attended to, 0 first
  (SELECT rt.text FROM token AS rt WHERE rt.token = (
    SELECT rs.token FROM step AS rs WHERE rs.run = h.run AND rs.step = coalesce(
      (SELECT max(rk.step) FROM kv_row AS rk
       WHERE rk.run = h.run AND rk.layer = h.layer AND rk.row = n.n AND rk.step <= h.step),
      (SELECT max(+rl.step) FROM step AS rl
       WHERE rl.run = h.run AND rl.cache_length_before = n.n AND +rl.step <= h.step)))) AS row_token_text,  -- the token that this row came from
  (((instr(l.bytes, substr(h.scores, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.scores, 4 * n.n + 2, 1)) << 8)
    + instr(l.bytes, substr(h.scores, 4 * n.n + 1, 1))
    + a.hidden) * a.scale * a.again - a.minus AS score,    -- q·K[row] / sqrt(head_dim); NULL for NaN
  (((instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * n.n + 2, 1)) << 8)
    + instr(l.bytes, substr(h.weights, 4 * n.n + 1, 1))
    + b.hidden) * b.scale * b.again - b.minus AS weight   -- softmax of the scores; NULL for NaN
FROM byte_list AS l
CROSS JOIN head_step AS h
LEFT JOIN step AS s ON s.run = h.run AND s.step = h.step
LEFT JOIN token AS t ON t.token = s.token
CROSS JOIN number AS n ON n.n < max(ifnull(length(h.scores), 0), ifnull(length(h.weights), 0)) / 4
LEFT JOIN float_scale AS a
  ON a.high = instr(l.bytes, substr(h.scores, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.scores, 4 * n.n + 3, 1)) >> 7)
LEFT JOIN float_scale AS b
  ON b.high = instr(l.bytes, substr(h.weights, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) >> 7);

CREATE VIEW cache AS
-- The cache, one scalar of K and of V per line.
SELECT
  c.run AS run,
  c.layer AS layer,
  n.n AS head,
  c.row AS row,            -- the cache row
  c.step AS step,          -- the step that wrote it
  t.text AS token_text,    -- that step's token
  d.n AS dim,              -- 0 .. head_dim - 1 within the head
  (((instr(l.bytes, substr(c.k, 4 * (n.n * r.head_dim + d.n) + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(c.k, 4 * (n.n * r.head_dim + d.n) + 2, 1)) << 8)
    + instr(l.bytes, substr(c.k, 4 * (n.n * r.head_dim + d.n) + 1, 1))
    + a.hidden) * a.scale * a.again - a.minus AS k,  -- NULL for NaN
  (((instr(l.bytes, substr(c.v, 4 * (n.n * r.head_dim + d.n) + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(c.v, 4 * (n.n * r.head_dim + d.n) + 2, 1)) << 8)
    + instr(l.bytes, substr(c.v, 4 * (n.n * r.head_dim + d.n) + 1, 1))
    + b.hidden) * b.scale * b.again - b.minus AS v
FROM byte_list AS l
CROSS JOIN kv_row AS c
CROSS JOIN run AS r ON r.run = c.run
CROSS JOIN number AS n ON n.n < r.n_head
CROSS JOIN number AS d ON d.n < r.head_dim
LEFT JOIN float_scale AS a
  ON a.high = instr(l.bytes, substr(c.k, 4 * (n.n * r.head_dim + d.n) + 4, 1)) * 2 + (instr(l.bytes, substr(c.k, 4 * (n.n * r.head_dim + d.n) + 3, 1)) >> 7)
LEFT JOIN float_scale AS b
  ON b.high = instr(l.bytes, substr(c.v, 4 * (n.n * r.head_dim + d.n) + 4, 1)) * 2 + (instr(l.bytes, substr(c.v, 4 * (n.n * r.head_dim + d.n) + 3, 1)) >> 7)
LEFT JOIN step AS s ON s.run = c.run AND s.step = c.step
LEFT JOIN token AS t ON t.token = s.token;

CREATE VIEW query_vector AS
-- What each head asked with and what it took home: one scalar of q and of out per line.
SELECT
  h.run AS run,
  h.step AS step,
  h.layer AS layer,
  h.head AS head,
  n.n AS dim,    -- 0 .. head_dim - 1
  (((instr(l.bytes, substr(h.q, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.q, 4 * n.n + 2, 1)) << 8)
    + instr(l.bytes, substr(h.q, 4 * n.n + 1, 1))
    + a.hidden) * a.scale * a.again - a.minus AS q,      -- the query
  (((instr(l.bytes, substr(h.out, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.out, 4 * n.n + 2, 1)) << 8)
    + instr(l.bytes, substr(h.out, 4 * n.n + 1, 1))
    + b.hidden) * b.scale * b.again - b.minus AS out   -- the sum of weight · V[row] over the rows
FROM byte_list AS l
CROSS JOIN head_step AS h
CROSS JOIN number AS n ON n.n < max(ifnull(length(h.q), 0), ifnull(length(h.out), 0)) / 4
LEFT JOIN float_scale AS a
  ON a.high = instr(l.bytes, substr(h.q, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.q, 4 * n.n + 3, 1)) >> 7)
LEFT JOIN float_scale AS b
  ON b.high = instr(l.bytes, substr(h.out, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.out, 4 * n.n + 3, 1)) >> 7);

CREATE VIEW logit AS
-- The whole distribution after a step: one line per token of the vocabulary. (top_token has the best without decoding.)
SELECT
  s.run AS run,
  s.step AS step,
  n.token AS token,
  n.text AS token_text,
  (((instr(l.bytes, substr(s.logits, 4 * n.token + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(s.logits, 4 * n.token + 2, 1)) << 8)
    + instr(l.bytes, substr(s.logits, 4 * n.token + 1, 1))
    + a.hidden) * a.scale * a.again - a.minus AS logit
FROM byte_list AS l
CROSS JOIN step_vector AS s
CROSS JOIN token AS n ON n.token < length(s.logits) / 4
LEFT JOIN float_scale AS a
  ON a.high = instr(l.bytes, substr(s.logits, 4 * n.token + 4, 1)) * 2 + (instr(l.bytes, substr(s.logits, 4 * n.token + 3, 1)) >> 7);

CREATE VIEW rule AS
-- The rule, step by step: the position is the cache length read BEFORE this step's append.
SELECT
  run,
  step,
  cache_length_before,
  position,
  position - cache_length_before AS off_by,  -- NULL where no position was added
  CASE
    WHEN cache_length_before IS NULL THEN NULL             -- not known, so no verdict
    WHEN position = cache_length_before THEN 'ok'
    WHEN position = cache_length_before + 1 THEN 'one too far'
    WHEN position = 0 AND cache_length_before > 0 THEN 'reset to 0'
    ELSE 'wrong'                                           -- no position at all is wrong as well
  END AS verdict
FROM step;

CREATE VIEW head_summary AS
-- Each head's attention in a few numbers: those that were stored, else reckoned from `weights`.
-- "Itself" is the row that this step appended, row cache_length_before (the last one, if that is not known).
SELECT
  run,
  step,
  layer,
  head,
  entropy,          -- -Σ w·ln w in nats: 0 looks at one row, ln(rows) at all alike
  CASE typeof(max_weight) WHEN 'integer'
    THEN ((max_weight & 8388607) + m.hidden) * m.scale * m.again - m.minus ELSE max_weight END AS max_weight,  -- the largest weight …
  max_row,          -- … and its row, the first among equals
  CASE typeof(self_weight) WHEN 'integer'
    THEN ((self_weight & 8388607) + i.hidden) * i.scale * i.again - i.minus ELSE self_weight END AS self_weight,  -- the weight of itself
  CASE typeof(first_weight) WHEN 'integer'
    THEN ((first_weight & 8388607) + f.hidden) * f.scale * f.again - f.minus ELSE first_weight END AS first_weight,  -- the weight of row 0 (an "attention sink" if it is large)
  CASE typeof(previous_weight) WHEN 'integer'
    THEN ((previous_weight & 8388607) + p.hidden) * p.scale * p.again - p.minus ELSE previous_weight END AS previous_weight,  -- the weight of the row before itself; NULL where there is none
  CASE typeof(weight_sum) WHEN 'integer'
    THEN 1 + weight_sum / 9007199254740992.0 ELSE weight_sum END AS weight_sum  -- 1 but for rounding; like entropy NULL if a weight is NaN
FROM head_stat
LEFT JOIN float_scale AS m ON m.high = (max_weight >> 23) & 511
LEFT JOIN float_scale AS i ON i.high = (self_weight >> 23) & 511
LEFT JOIN float_scale AS f ON f.high = (first_weight >> 23) & 511
LEFT JOIN float_scale AS p ON p.high = (previous_weight >> 23) & 511
UNION ALL
SELECT
  h.run,
  h.step,
  h.layer,
  h.head,
  (SELECT CASE WHEN count(w) = count(*) THEN total(term) END
   -- ln w = ln scale + 2·atanh((m - c) / (m + c)), m = w / scale in 2^23 .. 2^24 and c in their middle.
   -- LIMIT -1 keeps SQLite from copying an expression to every place that mentions it.
   FROM (SELECT w, CASE WHEN w > 0 THEN -w * (ln_scale + 2*y*(1 + u/3 + u*u/5 + u*u*u/7 + u*u*u*u/9 + u*u*u*u*u/11 + u*u*u*u*u*u/13 + u*u*u*u*u*u*u/15 + u*u*u*u*u*u*u*u/17 + u*u*u*u*u*u*u*u*u/19)) END AS term
   FROM (SELECT w, ln_scale, y, y*y AS u
   FROM (SELECT w, ln_scale, (w / scale - 11863283.203031445) / (w / scale + 11863283.203031445) AS y
   FROM (SELECT f.scale AS scale, ((f.high & 255) - 126.5) * 0.6931471805599453 AS ln_scale,
      (((instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * n.n + 2, 1)) << 8)
      + instr(l.bytes, substr(h.weights, 4 * n.n + 1, 1)) + f.hidden) * f.scale * f.again - f.minus AS w
   FROM byte_list AS l CROSS JOIN number AS n ON n.n < length(h.weights) / 4
   LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(h.weights, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) >> 7)
   LIMIT -1) LIMIT -1) LIMIT -1))
   WHERE h.weights IS NOT NULL),
  (SELECT max((((instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * n.n + 2, 1)) << 8)
      + instr(l.bytes, substr(h.weights, 4 * n.n + 1, 1)) + f.hidden) * f.scale * f.again - f.minus)
   FROM byte_list AS l CROSS JOIN number AS n ON n.n < length(h.weights) / 4
   LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(h.weights, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) >> 7)),
  (SELECT CASE WHEN best IS NOT NULL THEN i END -- SQLite takes `i` from the line that has the max()
   FROM (SELECT n.n AS i, max((((instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * n.n + 2, 1)) << 8)
      + instr(l.bytes, substr(h.weights, 4 * n.n + 1, 1)) + f.hidden) * f.scale * f.again - f.minus) AS best
   FROM byte_list AS l CROSS JOIN number AS n ON n.n < length(h.weights) / 4
   LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(h.weights, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) >> 7))),
  CASE WHEN 4 * coalesce(s.cache_length_before, length(h.weights) / 4 - 1) BETWEEN 0 AND length(h.weights) - 4 THEN
  (SELECT (((instr(l.bytes, substr(h.weights, 4 * coalesce(s.cache_length_before, length(h.weights) / 4 - 1) + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * coalesce(s.cache_length_before, length(h.weights) / 4 - 1) + 2, 1)) << 8)
      + instr(l.bytes, substr(h.weights, 4 * coalesce(s.cache_length_before, length(h.weights) / 4 - 1) + 1, 1)) + f.hidden) * f.scale * f.again - f.minus
   FROM byte_list AS l
   LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(h.weights, 4 * coalesce(s.cache_length_before, length(h.weights) / 4 - 1) + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * coalesce(s.cache_length_before, length(h.weights) / 4 - 1) + 3, 1)) >> 7)) END,
  (SELECT (((instr(l.bytes, substr(h.weights, 4 * 0 + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * 0 + 2, 1)) << 8)
      + instr(l.bytes, substr(h.weights, 4 * 0 + 1, 1)) + f.hidden) * f.scale * f.again - f.minus
   FROM byte_list AS l
   LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(h.weights, 4 * 0 + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * 0 + 3, 1)) >> 7)),
  CASE WHEN 4 * coalesce(s.cache_length_before, length(h.weights) / 4 - 1) BETWEEN 4 AND length(h.weights) THEN
  (SELECT (((instr(l.bytes, substr(h.weights, 4 * (coalesce(s.cache_length_before, length(h.weights) / 4 - 1) - 1) + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * (coalesce(s.cache_length_before, length(h.weights) / 4 - 1) - 1) + 2, 1)) << 8)
      + instr(l.bytes, substr(h.weights, 4 * (coalesce(s.cache_length_before, length(h.weights) / 4 - 1) - 1) + 1, 1)) + f.hidden) * f.scale * f.again - f.minus
   FROM byte_list AS l
   LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(h.weights, 4 * (coalesce(s.cache_length_before, length(h.weights) / 4 - 1) - 1) + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * (coalesce(s.cache_length_before, length(h.weights) / 4 - 1) - 1) + 3, 1)) >> 7)) END,
  (SELECT CASE WHEN count(w) = count(*) THEN sum(w) END FROM (SELECT (((instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) & 127) << 16) + (instr(l.bytes, substr(h.weights, 4 * n.n + 2, 1)) << 8)
      + instr(l.bytes, substr(h.weights, 4 * n.n + 1, 1)) + f.hidden) * f.scale * f.again - f.minus AS w
   FROM byte_list AS l CROSS JOIN number AS n ON n.n < length(h.weights) / 4
   LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(h.weights, 4 * n.n + 4, 1)) * 2 + (instr(l.bytes, substr(h.weights, 4 * n.n + 3, 1)) >> 7) LIMIT -1))
FROM head_step AS h
LEFT JOIN step AS s ON s.run = h.run AND s.step = h.step
WHERE NOT EXISTS (SELECT 1 FROM head_stat AS d
                  WHERE d.run = h.run AND d.step = h.step AND d.layer = h.layer AND d.head = h.head);

CREATE VIEW step_summary AS
-- One line per step: what came in, what the model thought of it, and what came next.
SELECT
  s.run AS run,
  s.step AS step,
  s.mode AS mode,
  t.text AS token_text,            -- this step's token
  s.position AS position,
  nt.text AS chosen_token_text,    -- the next step's token: what was chosen, or came next in the prompt
  s.logprob AS logprob,            -- ln of this token's probability as the step before saw it
  CASE WHEN EXISTS (SELECT 1 FROM step_stat AS d WHERE d.run = s.run AND d.step = s.step)
    THEN (SELECT d.entropy FROM step_stat AS d WHERE d.run = s.run AND d.step = s.step)
    ELSE (
      -- Not stored: from the logits, -Σ p·ln p = ln Z - Σ e^x·x / Z with x = logit - the largest and Z = Σ e^x.
      SELECT (ln_scale + 2 * y * (1 + u/3 + u*u/5 + u*u*u/7 + u*u*u*u/9 + u*u*u*u*u/11 + u*u*u*u*u*u/13 + u*u*u*u*u*u*u/15 + u*u*u*u*u*u*u*u/17 + u*u*u*u*u*u*u*u*u/19)) - mean
      FROM (SELECT ln_scale, mean, y, y * y AS u FROM (
        SELECT p.high * 0.6931471805599453 - 150 * 0.6931471805599453 + 0.34657359027997264 AS ln_scale, z.mean AS mean,
          (z.total / p.scale - 1.4142135623730951) / (z.total / p.scale + 1.4142135623730951) AS y
        FROM (
          SELECT CASE WHEN count(x) = count(*) THEN sum(ex) END AS total, sum(ex * x) / sum(ex) AS mean FROM (
            SELECT x, e*e*e*e * e*e*e*e * e*e*e*e * e*e*e*e * coalesce(scale, 0.0) AS ex FROM (
            SELECT r.x AS x, e.scale AS scale, 1 + r + r*r/2 + r*r*r/6 + r*r*r*r/24 + r*r*r*r*r/120 + r*r*r*r*r*r/720 + r*r*r*r*r*r*r/5040 AS e
            FROM (
              SELECT v.x AS x, v.k AS k, (v.x - v.k * 0.6931471805599453) / 16 AS r FROM (
                SELECT q.x AS x, CAST(q.x * 1.4426950408889634 - 0.5 AS INTEGER) AS k FROM (
                  SELECT (((instr(l.bytes, substr(o.chunk, 4 * lo.n + 3, 1)) & 127) << 16)
                    + (instr(l.bytes, substr(o.chunk, 4 * lo.n + 2, 1)) << 8)
                    + instr(l.bytes, substr(o.chunk, 4 * lo.n + 1, 1)) + f.hidden) * f.scale * f.again - f.minus - m.best AS x
                  FROM byte_list AS l
                  CROSS JOIN (SELECT max(g.logit) AS best FROM top_token AS g WHERE g.run = s.run AND g.step = s.step) AS m
                  -- 1024 numbers at a time: SQLite would fetch the whole BLOB again for each byte of it
                  CROSS JOIN (
                    SELECT substr(w.logits, 4096 * hi.n + 1, 4096) AS chunk
                    FROM step_vector AS w CROSS JOIN number AS hi ON hi.n < (length(w.logits) + 4095) / 4096
                    WHERE w.run = s.run AND w.step = s.step LIMIT -1) AS o
                  CROSS JOIN number AS lo ON lo.n < length(o.chunk) / 4
                  LEFT JOIN float_scale AS f ON f.high = instr(l.bytes, substr(o.chunk, 4 * lo.n + 4, 1)) * 2
                    + (instr(l.bytes, substr(o.chunk, 4 * lo.n + 3, 1)) >> 7)
                  LIMIT -1) AS q LIMIT -1) AS v LIMIT -1) AS r
            LEFT JOIN float_scale AS e ON e.high = r.k + 150 AND r.k > -150
            LIMIT -1) LIMIT -1)) AS z
        JOIN float_scale AS p ON p.high = (SELECT max(b.high) FROM float_scale AS b WHERE b.high BETWEEN 150 AND 254 AND b.scale <= z.total)
        LIMIT 1) LIMIT 1))
    END AS entropy,                -- of the next token's distribution, in nats
  best.token_text AS top_token_text -- the most probable next token
FROM step AS s
LEFT JOIN token AS t ON t.token = s.token
LEFT JOIN step AS ns ON ns.run = s.run AND ns.step = s.step + 1
LEFT JOIN token AS nt ON nt.token = ns.token
LEFT JOIN top_token AS best ON best.run = s.run AND best.step = s.step AND best.rank = 1;
